"""Records of the calls on devices and their times: `tallow.profile`, and TALLOW_TRACE."""
