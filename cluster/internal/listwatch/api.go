package listwatch

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// API has the calls of a resource.
type API struct {
	List  func(ctx context.Context, opts metav1.ListOptions) (kruntime.Object, error)
	Watch func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Of returns the calls of a typed client, such as client.CoreV1().Pods("").
func Of[L kruntime.Object](client interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}) API {
	return API{
		List: func(ctx context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
			return client.List(ctx, opts)
		},
		Watch: client.Watch,
	}
}

// Versions are two versions of the API of a resource. The methods use the stable one, unless the
// API server has only the beta one. They are safe for concurrent use.
type Versions struct {
	name         string
	stable, beta API
	isBeta       atomic.Bool
}

// NewVersions returns the versions. The name of the resource is for errors.
func NewVersions(name string, stable, beta API) *Versions {
	return &Versions{name: name, stable: stable, beta: beta}
}

// API returns the calls of the resource.
func (v *Versions) API() API { return API{List: v.list, Watch: v.watch} }

// IsBeta reports whether the last list that succeeded was one of the beta version.
func (v *Versions) IsBeta() bool { return v.isBeta.Load() }

func (v *Versions) list(ctx context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
	list, err := v.stable.List(ctx, opts)
	isBeta := apierrors.IsNotFound(err)
	if isBeta {
		list, err = v.beta.List(ctx, opts)
	}
	switch {
	case err == nil:
		v.isBeta.Store(isBeta)
		return list, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not have the API of %s: %w", v.name, err)
	default:
		return nil, err
	}
}

func (v *Versions) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if v.IsBeta() {
		return v.beta.Watch(ctx, opts)
	}
	return v.stable.Watch(ctx, opts)
}
