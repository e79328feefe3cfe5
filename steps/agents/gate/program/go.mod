module swe-argo/gate

go 1.24
