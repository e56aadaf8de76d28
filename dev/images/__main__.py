"""Command line: make the current images and bring them into the cluster."""

from dev import cache, packages, steps, target
from dev.images import build, names


def main() -> None:
    """Build and load, or say how to build and push for a cluster that is not ours."""
    cache.folder()
    # Once: whoever edits the sources meanwhile gets another tag next time.
    images = names.ours()
    if target.is_existing():
        for image in images:
            steps.say(f"docker build --file {image.file.name} --tag {image.name} . && docker push {image.name}")
    else:
        steps.run(packages.steps(packages.IMAGES))
        target.ensure(build.build_steps(images))
        steps.run(build.load_steps(images))
    names.record(images)
    steps.say("\n".join(image.name for image in images))


if __name__ == "__main__":
    steps.main(main)
