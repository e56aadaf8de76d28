"""Routes that trainers call without changes: prime-rl's, vLLM's and Dynamo's."""
