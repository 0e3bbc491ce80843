"""`--base-model SLUG=PATH`, shared by the commands that prepare a stack."""

from argparse import ArgumentParser, ArgumentTypeError


def add_base_model_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--base-model",
        dest="base_models",
        action="append",
        default=[],
        type=_slug_and_path,
        metavar="SLUG=PATH",
        help="register a base model (local directory or hub id); may be given several times",
    )


def _slug_and_path(text: str) -> tuple[str, str]:
    slug, equals, path = text.partition("=")
    if not (slug and equals and path):
        raise ArgumentTypeError(f"{text!r} is not of the form SLUG=PATH")
    return slug, path
