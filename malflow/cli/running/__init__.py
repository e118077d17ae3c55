"""How ``malflow run`` runs a script: found, adapted, configured, watched and served."""
