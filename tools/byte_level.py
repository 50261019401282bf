"""The alphabet of byte-level vocabularies."""


def byte_alphabet() -> dict[str, int]:
    """Character -> byte (GPT-2's bytes_to_unicode, reversed)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
