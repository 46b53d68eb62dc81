"""Judge a model: store split -> samples -> metrics -> tables, with the readers' own figures beside them."""
