package server

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

var (
	// errQuery means that a parameter has no value of its type, errInvalid that the values
	// are not valid. Kubelet tells no more.
	errQuery   = errors.New(`{"message": "Unable to decode query."}`)
	errInvalid = errors.New(`{"message": "Invalid request."}`)
)

// restartsParam is the parameter of our own by which a log that is followed goes on with
// later instances of the container.
const restartsParam = "restarts"

// logOptions are the API's PodLogOptions as the handler uses them.
type logOptions struct {
	follow, previous, timestamps, restarts bool
	// tail is the number of lines from the end. Negative means all lines.
	tail int
	// limit is the number of bytes of the answer. Negative means all.
	limit int64
	// since is the time of the first line, zero for all.
	since time.Time
	// stream is crilog.Stdout or crilog.Stderr, or empty for both.
	stream string
}

// parseLogOptions parses and validates the query as kubelet does: unknown parameters are
// ignored, of several values the first one counts, and a bool is true unless it is "false" or
// "0". The error is errQuery or errInvalid.
func parseLogOptions(query url.Values, now time.Time) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1, follow: queryBool(query, "follow"), previous: queryBool(query, "previous"),
		timestamps: queryBool(query, "timestamps"), restarts: queryBool(query, restartsParam)}
	tail := "tailLines"
	if query.Get("tail") != "" { // the old name, in which "all" is a value
		tail = "tail"
	}
	var tailLines, sinceSeconds, limitBytes *int64
	var err error
	if !(tail == "tail" && query.Get(tail) == "all") {
		tailLines, err = queryInt(query, tail)
	}
	for name, value := range map[string]**int64{"sinceSeconds": &sinceSeconds, "limitBytes": &limitBytes} {
		var wrong error
		*value, wrong = queryInt(query, name)
		err = errors.Join(err, wrong)
	}
	var sinceTime metav1.Time
	times := query["sinceTime"]
	if len(times) > 0 {
		err = errors.Join(err, sinceTime.UnmarshalQueryParameter(times[0]))
	}
	if err != nil {
		return o, errQuery
	}
	stream := v1.LogStreamAll
	if len(query["stream"]) > 0 {
		stream = query["stream"][0]
	}
	switch {
	case tailLines != nil && *tailLines < 0,
		limitBytes != nil && *limitBytes < 1,
		sinceSeconds != nil && len(times) > 0,
		sinceSeconds != nil && *sinceSeconds < 1,
		stream != v1.LogStreamAll && (stream != v1.LogStreamStdout && stream != v1.LogStreamStderr || tailLines != nil):
		return o, errInvalid
	}
	switch stream {
	case v1.LogStreamStdout:
		o.stream = crilog.Stdout
	case v1.LogStreamStderr:
		o.stream = crilog.Stderr
	}
	if tailLines != nil {
		o.tail = int(min(*tailLines, 1<<31-1))
	}
	if limitBytes != nil {
		o.limit = *limitBytes
	}
	o.since = sinceTime.Time
	if sinceSeconds != nil {
		// No more than the age of any log: a time.Duration has 292 years.
		o.since = now.Add(-time.Duration(min(*sinceSeconds, 100*365*24*60*60)) * time.Second)
	}
	return o, nil
}

func queryBool(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

func queryInt(query url.Values, name string) (*int64, error) {
	values := query[name]
	if len(values) == 0 {
		return nil, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return &n, err
}
