"""What figures should show, written down before their runs were trained; one TOML file a study."""
