// Package auth decides who may use the kubelet's HTTP API.
//
// A [Guard] stands before the handlers of a port. It identifies the client
// ([Authenticator]), determines the permission that the request needs ([Verb] and [Subresources],
// as in kubelet), and checks whether the client has it ([Authorizer]). A request that is not
// allowed does not reach the handlers. Its answer does not depend on them, not even on whether a
// path or a pod exists.
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
// The authenticators are called in order, until one identifies the client. If
// [Options].Anonymous is true, a client without credentials is anonymous: user system:anonymous of
// the group system:unauthenticated. A client with invalid credentials is never anonymous.
//
// # Authorizers
//
// The resource is always the node itself, and the subresource depends on the path, see
// [Subresources]. The authorizer of package cluster/reviews has the API server review each
// request. For nodes without an API server there are [SystemMasters], and [RBAC] with roles from a
// file. [AnyOf] combines several. [AlwaysAllow] allows everything, as kubelet's authorization mode
// of this name.
//
// An error of an authorizer means that it could not decide. The request fails with status 500,
// and does not reach the handler.
package auth
