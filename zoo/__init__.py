"""Tiny random models of many architectures, put through a change of weights on real vLLM.

``models.yaml`` names them, ``keeper`` makes their files, ``engine`` holds one vLLM in this
process, ``examine`` does what a worker does with a version. It runs where vLLM is, in the
worker's image; dev/zoo.py takes it there (`make zoo`).
"""
