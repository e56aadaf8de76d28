"""The routes of trainers without changes to them: prime-rl's, vLLM's and Dynamo's."""
