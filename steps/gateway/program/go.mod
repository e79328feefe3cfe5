module swe-argo/gateway

go 1.24
