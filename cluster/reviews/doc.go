// Package reviews authenticates and authorizes clients of the node's port with reviews of the API
// server, as kubelet does with its webhook modes of authentication and authorization.
//
//	guard, err := auth.New(auth.Options{
//		NodeName:       "edge-7",
//		Authenticators: []auth.Authenticator{clientCA, reviews.NewTokens(client, reviews.TokensOptions{})},
//		Authorizer:     reviews.NewAccess(client, reviews.AccessOptions{}),
//	})
//
// [Tokens] implements auth.Authenticator of package server/auth with TokenReviews, for bearer
// tokens such as those of service accounts. [Access] implements auth.Authorizer with
// SubjectAccessReviews. The credentials of a node may create both.
//
// # Cache
//
// Answers are kept for a time, so that a scraper causes almost no requests to the API server.
// For that time, a revoked token and a permission that was removed are still valid. At most one
// request for the same review is under way, and at most 4096 answers of each kind are kept. The
// cache has hashes of tokens, and no tokens.
//
// # Errors
//
// A request that may succeed later is repeated up to four times, for 10 seconds at most. If it
// still fails, as while the API server cannot be reached, clients are refused unless the cache
// has the answer. Give the Kubernetes client a budget of requests of its own: an unknown client
// can cause requests with invalid tokens.
package reviews
