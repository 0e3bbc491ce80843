"""What tenants upload, read safely: any common format, encoding and shape, to stored rows.

Pure: no module here knows the database or the artifact store. `reading` opens a file as records,
`shaping` makes each a stored row, `importing` runs both over a whole file, `previewing` over its
head. Memory is bounded by one record, whatever the file is; what is wrong is told by its line.
"""
