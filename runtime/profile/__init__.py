"""What calls on devices do and how long it takes: `tallow.profile`, and TALLOW_TRACE."""
