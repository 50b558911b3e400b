"""Classic sequence models as first-class citizens of the Hugging Face ecosystem."""
