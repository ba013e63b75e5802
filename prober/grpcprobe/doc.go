// Package grpcprobe makes gRPC health checks: the unary call
// grpc.health.v1.Health/Check, as kubelet does for gRPC probes.
//
//	client := &grpcprobe.Client{UserAgent: "kube-probe/1.37"}
//	healthy, message := client.Probe(ctx, "10.0.0.7:9000", "", time.Second)
//
// The call is made with the HTTP/2 of net/http and the wire format of protocol
// buffers, so that an agent does not link google.golang.org/grpc because of it. It
// follows the gRPC protocol over HTTP/2
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) and the health
// checking protocol (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
package grpcprobe
