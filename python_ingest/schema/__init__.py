"""What schemas become: a form that all writers of a topic fit in, and the columns it is landed in."""
