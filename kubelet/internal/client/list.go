package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// listFlags are the flags of lists. They are kubectl's.
type listFlags struct {
	selector, sortBy string
	watch            bool
}

// watchPeriod is how often a list that is watched is read.
const watchPeriod = time.Second

func (c *call) selectorFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&c.listFlags.selector, "selector", "l", "", "the pods with these labels, such as app=web,tier!=db")
}

func (c *call) watchFlag(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.listFlags.watch, "watch", "w", false, "print what changes until the command is ended")
}

// sortFlag adds the flag --sort-by. columns are the names that it takes.
func sortFlag(columns string) func(c *call, fs *pflag.FlagSet) {
	return func(c *call, fs *pflag.FlagSet) {
		fs.StringVar(&c.listFlags.sortBy, "sort-by", "", "sort the list by "+columns)
	}
}

// selected returns the selector of the flag, which selects all without it.
func (c *call) selected() (labels.Selector, error) {
	selector, err := labels.Parse(c.listFlags.selector)
	if err != nil {
		return nil, c.misused(fmt.Sprintf("--selector %q: %s", c.listFlags.selector, err))
	}
	return selector, nil
}

// again calls print, and again whenever the period has passed until ctx ends.
func (c *call) again(ctx context.Context, print func() error) error {
	tick := time.NewTicker(cmp.Or(c.period, watchPeriod))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done(): // a signal
			return nil
		case <-tick.C:
		}
		if err := print(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// item is an element of a list.
type item struct {
	// key is what the element has for itself, and name its line with -o name.
	key, name string
	cells     []string
	value     any
	// is makes another line in a list that is watched, and gone returns the last one of the element; there is none if
	// it is nil.
	is   string
	gone func() []string
}

// watchItems prints a list, and with --watch each element again when it has changed or is gone. list returns the
// elements, and all of them as one value. kind is their name in the plural, for a list that is empty.
func watchItems(ctx context.Context, c *call, p *printer, kind string, list func() ([]item, any, error)) error {
	var shown []item
	first := true
	print := func() error {
		found, all, err := list()
		if err != nil {
			return err
		}
		if first && len(found) == 0 && !c.output.structured() {
			fmt.Fprintf(c.Err, "No %s found.\n", kind)
		}
		first = false
		before, now := byKey(shown), byKey(found)
		for _, i := range found {
			if was, ok := before[i.key]; ok && was.is == i.is {
				continue
			}
			if c.listFlags.watch && c.output.structured() {
				if err := p.document(i.value); err != nil {
					return err
				}
			}
			if err := p.row(i.name, i.cells...); err != nil {
				return err
			}
		}
		for _, i := range shown {
			if _, ok := now[i.key]; ok || i.gone == nil || c.output == asName {
				continue
			}
			if err := p.row(i.name, i.gone()...); err != nil {
				return err
			}
		}
		shown = found
		if c.listFlags.watch {
			return p.flush()
		}
		return p.end(all)
	}
	if err := print(); err != nil || !c.listFlags.watch {
		return err
	}
	return c.again(ctx, print)
}

func byKey(list []item) map[string]item {
	m := make(map[string]item, len(list))
	for _, i := range list {
		m[i.key] = i
	}
	return m
}

// order is what a list is sorted by: a number, or a text if both numbers are equal.
type order struct {
	number float64
	text   string
}

func (o order) compare(other order) int {
	return cmp.Or(cmp.Compare(o.number, other.number), strings.Compare(o.text, other.text))
}

// sortItems sorts a list by --sort-by: one of the columns, or the path of a field of the value in JSON, such as
// .metadata.name or {.status.podIP}.
func sortItems[T any](c *call, list []T, columns map[string]func(T) order) error {
	by := c.listFlags.sortBy
	if by == "" {
		return nil
	}
	key := columns[strings.ToLower(by)]
	if key == nil {
		path, ok := fieldPath(by)
		if !ok {
			return c.misused(fmt.Sprintf("--sort-by %q: want a path such as .metadata.name, or %s", by,
				strings.Join(slices.Sorted(maps.Keys(columns)), ", ")))
		}
		key = func(item T) order { return orderOf(fieldOf(item, path)) }
	}
	slices.SortStableFunc(list, func(a, b T) int { return key(a).compare(key(b)) })
	return nil
}

// fieldPath returns the names and indexes of a path.
func fieldPath(text string) ([]string, bool) {
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		if text, ok = strings.CutSuffix(inner, "}"); !ok {
			return nil, false
		}
	}
	if !strings.HasPrefix(text, ".") || len(text) < 2 {
		return nil, false
	}
	path := strings.Split(strings.ReplaceAll(text[1:], "[", ".["), ".")
	for i := range path {
		if path[i] == "" {
			return nil, false
		}
		path[i] = strings.Trim(path[i], "[]")
	}
	return path, true
}

// fieldOf returns a field of the value in JSON, nil if there is none.
func fieldOf(value any, path []string) (field any) {
	data, err := json.Marshal(value)
	if err != nil || json.Unmarshal(data, &field) != nil {
		return nil
	}
	for _, name := range path {
		switch at := field.(type) {
		case map[string]any:
			field = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			field = at[i]
		default:
			return nil
		}
	}
	return field
}

// orderOf returns the order of a value of JSON. Times, and quantities such as 100m, are texts there.
func orderOf(value any) order {
	switch v := value.(type) {
	case nil:
		return order{}
	case float64:
		return order{number: v}
	case string:
		if _, err := time.Parse(time.RFC3339, v); err == nil {
			return order{text: v} // all are in UTC
		}
		if q, err := resource.ParseQuantity(v); err == nil {
			return order{number: q.AsApproximateFloat64()}
		}
		return order{text: v}
	default:
		return order{text: fmt.Sprint(v)}
	}
}
