"""The routes that trainers call as they are: prime-rl's, vLLM's own and Dynamo's."""
