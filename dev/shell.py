"""Runs the commands that a person would type, and prints each as it is run."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev import environment, target
from dev.steps import StepFailed, say


@dataclass(frozen=True)
class Shell:
    """kubectl and helm against one cluster and, for kubectl, one namespace."""

    kubeconfig: Path
    namespace: str
    is_quiet: bool = False
    """Print no commands: for tests, whose readers look at failures."""

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl in the namespace and return what it prints."""
        return self.run("kubectl", "-n", self.namespace, *words, stdin=stdin, check=check)

    def run(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Run a command and return its output; raises StepFailed with the output of a failure."""
        if not self.is_quiet:
            say(f"$ {shlex.join(words)}")
        done = subprocess.run(
            words, input=stdin, env=self.environment(), text=True, capture_output=True, check=False
        )
        if check and done.returncode:
            raise StepFailed(f"{shlex.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout + ("" if check else done.stderr)

    def show(self, *words: str) -> str:
        """Run kubectl and print its answer, too."""
        text = self.kubectl(*words)
        say(text.rstrip())
        return text

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start kubectl in the background, its input and output as pipes."""
        command = ("kubectl", "-n", self.namespace, *words)
        if not self.is_quiet:
            say(f"$ {shlex.join(command)} &")
        return subprocess.Popen(
            command,
            env=self.environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=1,
        )

    def environment(self) -> dict[str, str]:
        """Return an environment in which kubectl and helm are found and mean this cluster."""
        chosen = {"KUBECONFIG": str(self.kubeconfig), "PATH": target.search_path()}
        return environment.everything() | chosen
