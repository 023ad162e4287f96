"""Random graphs through everything that answers about them: what ``make soak`` runs."""
