"""Published numbers beside measured ones: one page, made from records. No torch."""
