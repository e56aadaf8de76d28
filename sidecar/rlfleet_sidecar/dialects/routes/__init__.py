"""The trainers' own routes: parse, call the session, answer in the client's words."""
