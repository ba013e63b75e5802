package server

import (
	"fmt"
	"net/url"
	"os"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of a query are kubelet's.
const (
	maxTailLines     = 100000
	maxServiceLength = 256
	maxServices      = 4
)

// nodeLogQuery is a query of services, or of one file. Its texts and rules are kubelet's.
type nodeLogQuery struct {
	services, files []string
	nodeLogOptions
}

// nodeLogOptions are the options of a query of services.
type nodeLogOptions struct {
	since, until *time.Time
	tailLines    *int
	boot         *int
	pattern      string
}

// parseNodeLogQuery parses the query of a URL. It returns nil if there is none.
func parseNodeLogQuery(query url.Values) (*nodeLogQuery, error) {
	var q nodeLogQuery
	var errs field.ErrorList
	invalid := func(name string, value any, text string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, text))
	}
	values, given := query["query"]
	for _, v := range values {
		switch {
		case strings.ContainsAny(v, `/\`): // a file; a service name has neither
			q.files = append(q.files, v)
		case strings.TrimSpace(v) != "":
			q.services = append(q.services, v)
		}
	}
	if given && len(q.files) == 0 && len(q.services) == 0 {
		invalid("query", values, "may not be empty")
	}
	parseTime := func(name string) *time.Time {
		v := query.Get(name)
		if v == "" {
			return nil
		}
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			invalid(name, v, "invalid time format")
			return nil
		}
		return &t
	}
	parseInt := func(name string) *int {
		v := query.Get(name)
		if v == "" {
			return nil
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			invalid(name, v, err.Error())
			return nil
		}
		return &n
	}
	q.since, q.until = parseTime("sinceTime"), parseTime("untilTime")
	q.boot, q.tailLines = parseInt("boot"), parseInt("tailLines")
	q.pattern = query.Get("pattern")
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if len(q.files) == 0 && len(q.services) == 0 && q.nodeLogOptions == (nodeLogOptions{}) {
		return nil, nil
	}
	return &q, nil
}

// validate checks the query. A file must exist in dir.
func (q *nodeLogQuery) validate(dir string) error {
	path := field.NewPath("query")
	var errs field.ErrorList
	for _, s := range q.services {
		if len(s) > maxServiceLength {
			errs = append(errs, field.Invalid(path, s, fmt.Sprintf("length must be less than %d", maxServiceLength)))
		} else if !isServiceName(s) {
			errs = append(errs, field.Invalid(path, s, "input contains unsupported characters"))
		}
	}
	if len(q.services) > maxServices {
		errs = append(errs, field.TooMany(path, len(q.services), maxServices))
	}
	switch {
	case len(q.files) == 0 && len(q.services) == 0:
		errs = append(errs, field.Required(path, "cannot be empty with options"))
	case len(q.files) > 0 && len(q.services) > 0:
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%v, %v", q.files, q.services),
			"cannot specify a file and service"))
	case len(q.files) > 1:
		errs = append(errs, field.Invalid(path, q.files, "cannot specify more than one file"))
	case len(q.files) == 1 && q.nodeLogOptions != (nodeLogOptions{}):
		errs = append(errs, field.Invalid(path, q.files, "cannot specify file with options"))
	case len(q.files) == 1:
		if err := existsIn(dir, q.files[0]); err != nil {
			errs = append(errs, field.Invalid(path, q.files, err.Error()))
		}
	}
	if q.since != nil && q.until != nil && q.since.After(*q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until, "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.tailLines != nil {
		if wrong := validation.IsInRange(*q.tailLines, 0, maxTailLines); len(wrong) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.tailLines, wrong[0]))
		}
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	return errs.ToAggregate()
}

// isServiceName reports whether a service may be an argument of a program.
func isServiceName(s string) bool {
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:@", r)) {
			return false
		}
	}
	return true
}

func existsIn(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	_, err = root.Stat(name)
	return err
}
