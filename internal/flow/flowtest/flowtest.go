// Package flowtest tests the guards of Metrics.
package flowtest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Guard calls each method of the interface M on what guarded returns for a value of which
// all methods panic, such as a struct with a nil M embedded. No panic may pass, and each
// method is logged once.
func Guard[M any](t *testing.T, broken M, guarded func(M, logr.Logger) M) {
	t.Helper()
	var lines []string
	m := reflect.ValueOf(guarded(broken, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})))
	methods := reflect.TypeFor[M]()
	require.NotZero(t, methods.NumMethod())
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		call := m.MethodByName(name)
		args := make([]reflect.Value, call.Type().NumIn())
		for k := range args {
			args[k] = reflect.Zero(call.Type().In(k))
		}
		for range 2 {
			assert.NotPanics(t, func() { call.Call(args) }, name)
		}
		require.Len(t, lines, i+1, "%s is logged once", name)
		assert.True(t, strings.Contains(lines[i], `"callback"="Metrics.`+name+`"`), lines[i])
	}
}
