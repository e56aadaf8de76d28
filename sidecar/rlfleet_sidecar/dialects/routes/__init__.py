"""The trainers' routes: parse, call the session, reply in the client's form."""
