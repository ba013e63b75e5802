// Package auth decides who may use the kubelet's HTTP API.
//
// A [Guard] stands before the handlers of a port. It identifies the client
// ([Authenticator]), finds out what the request needs ([Verb] and [Subresources], those of kubelet),
// and whether the client may do that ([Authorizer]). Nothing behind it sees a request that is not allowed, and an
// answer to such a request depends on nothing behind it: not even on whether a path or a pod
// exists.
//
//	guard, err := auth.New(auth.Options{
//		NodeName:       "edge-7",
//		Authenticators: []auth.Authenticator{clientCA, tokens},
//		Authorizer:     auth.SystemMasters{},
//	})
//	...
//	err = server.ServeTLS(ctx, listener, guard.Protect(handler), server.TLSOptions{GetCertificate: serving.GetCertificate})
//
// # Authenticators
//
// [ClientCA] identifies clients by certificates, as the API server and kubectl have them. The
// user is the common name of the subject, the groups are its organizations. [TokenFile] has
// bearer tokens from a file; package cluster/reviews has the API server review them.
//
// The authenticators are called in order, until one knows the client. A client without
// credentials is anonymous: user system:anonymous of the group system:unauthenticated, if
// [Options].Anonymous allows that. A client whose credentials are not valid is never anonymous.
//
// # Authorizers
//
// The resource is always the node itself, and the subresource depends on the path, see
// [Subresources]. Package cluster/reviews asks the API server. For nodes without one there are
// [SystemMasters], and [RBAC] with roles from a file. [AnyOf] combines several. [AlwaysAllow] allows
// everything, as kubelet's authorization mode of this name.
//
// An error of an authorizer means that it could not decide. The request fails with status 500,
// and does not reach the handler.
package auth
