package podstatus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAnswers(t *testing.T) {
	pods := v1.Resource("pods")
	kind := schema.GroupKind{Kind: "Pod"}
	bare := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "PATCH", pods, "web", "the page of a proxy", 0, true)
	}
	for name, c := range map[string]struct {
		err  error
		want answer
	}{
		"no answer":        {errors.New("connection refused"), failed},
		"deadline":         {context.DeadlineExceeded, failed},
		"400":              {apierrors.NewBadRequest("no JSON"), invalid},
		"401":              {apierrors.NewUnauthorized("expired"), failed},
		"403":              {apierrors.NewForbidden(pods, "web", errors.New("no")), denied},
		"404":              {apierrors.NewNotFound(pods, "web"), gone},
		"404 of a proxy":   {bare(http.StatusNotFound), failed},
		"409":              {apierrors.NewConflict(pods, "web", errors.New("modified")), conflict},
		"409, exists":      {apierrors.NewAlreadyExists(pods, "web"), exists},
		"410":              {apierrors.NewResourceExpired("gone"), gone},
		"413":              {apierrors.NewRequestEntityTooLargeError("3 MiB"), invalid},
		"422":              {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Invalid(field.NewPath("status", "podIPs"), "x", "no address")}), invalid},
		"422, another pod": {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "x", "immutable")}), gone},
		"429":              {apierrors.NewTooManyRequests("slow down", 1), failed},
		"500":              {apierrors.NewInternalError(errors.New("etcd")), failed},
		"503 of a proxy":   {bare(http.StatusServiceUnavailable), failed},
		"504":              {apierrors.NewTimeoutError("late", 1), failed},
	} {
		assert.Equal(t, c.want, answerOf(fmt.Errorf("wrapped: %w", c.err)), name)
	}
}
