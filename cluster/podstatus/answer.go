package podstatus

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is what the error of a call means for its pod.
type answer int

const (
	// failed: the call is repeated, because the server or the network has failed. That
	// includes 401 (the credentials may be renewed), 429 and 5xx.
	failed answer = iota
	// denied: the node is not allowed to do this at the moment. The call is repeated.
	denied
	// gone: there is no such pod, or another pod has its name.
	gone
	// invalid: the server, or a webhook of it, refuses the content. It will probably do so again,
	// so that the call is repeated less and less often.
	invalid
	// exists: the pod cannot be created, because another pod has its name.
	exists
	// conflict: the UID in the precondition of a deletion is not that of the pod, or there were
	// too many writers at once. The answer does not tell which.
	conflict
)

// answerOf returns the meaning of an error of the API server. err is not nil.
func answerOf(err error) answer {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return failed
	}
	s := status.Status()
	switch {
	case apierrors.IsNotFound(err):
		// A proxy, and a server that does not have the resource, answer 404 without an object.
		if hasCause(&s, metav1.CauseTypeUnexpectedServerResponse, "") {
			return failed
		}
		return gone
	case apierrors.IsForbidden(err):
		return denied
	case apierrors.IsAlreadyExists(err):
		return exists
	case apierrors.IsConflict(err):
		return conflict
	case apierrors.IsInvalid(err):
		if hasCause(&s, "", "metadata.uid") { // another pod has the name
			return gone
		}
		return invalid
	case s.Code == http.StatusGone:
		return gone
	case apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return invalid
	}
	return failed
}

// hasCause reports whether the status has a cause of the type and the field; "" matches all.
func hasCause(s *metav1.Status, t metav1.CauseType, field string) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if (t == "" || c.Type == t) && (field == "" || c.Field == field) {
			return true
		}
	}
	return false
}
