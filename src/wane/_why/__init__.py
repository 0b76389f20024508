"""Why a row is where it is: what takes it and when, what retains it, or what is known of one that is gone."""
