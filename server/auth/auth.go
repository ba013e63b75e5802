package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// The users and groups that Kubernetes defines (k8s.io/apiserver, package user).
const (
	// Anonymous is the user of a client that has shown no credentials.
	Anonymous = "system:anonymous"
	// AllUnauthenticated is the group of [Anonymous].
	AllUnauthenticated = "system:unauthenticated"
	// AllAuthenticated is a group of all other users.
	AllAuthenticated = "system:authenticated"
	// Masters is the group whose members may do everything.
	Masters = "system:masters"
)

// Authenticator identifies the client of a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the user. It returns nil if the request has no credentials of the
	// authenticator's kind, and an error if they are not valid or cannot be checked.
	Authenticate(req *http.Request) (*authenticationv1.UserInfo, error)
}

// Authorizer decides what a user may do. It is safe for concurrent use.
type Authorizer interface {
	// Authorize reports whether the user may do it. An error means that it could not be decided.
	Authorize(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool,
		error)
}

// AlwaysAllow is an [Authorizer] that allows everything.
type AlwaysAllow struct{}

// Authorize implements [Authorizer].
func (AlwaysAllow) Authorize(context.Context, *authenticationv1.UserInfo,
	*authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// SystemMasters is an [Authorizer] that allows everything to members of [Masters], and nothing
// to others.
type SystemMasters struct{}

// Authorize implements [Authorizer].
func (SystemMasters) Authorize(_ context.Context, user *authenticationv1.UserInfo,
	_ *authorizationv1.ResourceAttributes) (bool, error) {
	return slices.Contains(user.Groups, Masters), nil
}

// AnyOf is an [Authorizer] that asks others in order, until one allows it. An error counts only if
// none does.
type AnyOf []Authorizer

// Authorize implements [Authorizer].
func (all AnyOf) Authorize(ctx context.Context, user *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	var errs []error
	for _, a := range all {
		allowed, err := a.Authorize(ctx, user, what)
		if allowed && err == nil {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// Options are the options of [New]. NodeName and Authorizer are required.
type Options struct {
	// NodeName is the name of the node, which requests are about.
	NodeName string
	// Authenticators are called in order, until one knows the client.
	Authenticators []Authenticator
	// Anonymous lets clients without credentials be the user [Anonymous]. Otherwise they get
	// status 401.
	Anonymous bool
	// Authorizer decides what a user may do.
	Authorizer Authorizer
	// Logger receives why requests were refused. Default: that of package slog.
	Logger logr.Logger
}

// Guard stands before handlers. It is safe for concurrent use.
type Guard struct{ opts Options }

// New returns a guard. Its error joins what is wrong with the options.
func New(opts Options) (*Guard, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if opts.NodeName == "" {
		errs = append(errs, errors.New("auth: Options.NodeName is required"))
	}
	if opts.Authorizer == nil {
		errs = append(errs, errors.New("auth: Options.Authorizer is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts.Authenticators = slices.Clone(opts.Authenticators)
	return &Guard{opts}, nil
}

// Protect returns a handler that passes allowed requests on, without the header Authorization.
// It answers others as kubelet does: with status 401 if the client is not known, 403 if it is not
// allowed, 500 if that could not be decided. These answers do not depend on the handler, and do not
// wait for the body of the request: the connection ends if it is not there.
func (g *Guard) Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, err := g.authenticate(req)
		if err != nil {
			g.opts.Logger.V(1).Info("A client is not authenticated", "remote", req.RemoteAddr, "reason", err.Error())
			refuse(w, req, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decided := nodenet.Known(req.Context())
		status, reason := g.authorize(req, user)
		decided()
		if status != http.StatusOK {
			refuse(w, req, reason, status)
			return
		}
		req.Header.Del("Authorization") // handlers and those that they call have no use for it
		h.ServeHTTP(w, req)
	})
}

// refuse answers without waiting for the body of the request, as the server would do otherwise.
func refuse(w http.ResponseWriter, req *http.Request, reason string, status int) {
	if req.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	http.Error(w, reason, status)
}

var errNoCredentials = errors.New("no credentials")

// authenticate returns the user of the request.
func (g *Guard) authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	var errs []error
	for _, a := range g.opts.Authenticators {
		user, err := a.Authenticate(req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if user == nil {
			continue
		}
		if !slices.Contains(user.Groups, AllAuthenticated) && user.Username != Anonymous {
			known := *user
			known.Groups = append(slices.Clone(user.Groups), AllAuthenticated)
			user = &known
		}
		return user, nil
	}
	switch {
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	case !g.opts.Anonymous:
		return nil, errNoCredentials
	default:
		return &authenticationv1.UserInfo{Username: Anonymous, Groups: []string{AllUnauthenticated}}, nil
	}
}

// authorize returns the status of the answer, and for another one than 200 the text.
func (g *Guard) authorize(req *http.Request, user *authenticationv1.UserInfo) (status int, reason string) {
	subresources := Subresources(req.URL.Path)
	verb := Verb(req.Method, req.URL.Path)
	for _, subresource := range subresources {
		allowed, err := g.opts.Authorizer.Authorize(req.Context(), user, &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: g.opts.NodeName,
		})
		if err != nil {
			g.opts.Logger.Error(err, "A request could not be authorized", "user", user.Username, "verb", verb,
				"subresource", subresource)
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, "+
				"resource=nodes, subresource=%s)", user.Username, verb, subresource)
		}
		if allowed {
			return http.StatusOK, ""
		}
	}
	g.opts.Logger.V(1).Info("A request is forbidden", "user", user.Username, "verb", verb, "subresources", subresources,
		"remote", req.RemoteAddr)
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)",
		user.Username, verb, subresources)
}
