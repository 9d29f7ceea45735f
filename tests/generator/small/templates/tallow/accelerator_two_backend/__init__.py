"""The accelerator's successor."""
