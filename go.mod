module llmmemory

go 1.25.0
