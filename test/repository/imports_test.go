package repository_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module     = "github.com/kubeletkit/kubeletkit"
	podspec    = module + "/runtime/podspec"
	apitest    = module + "/internal/apitest" // the API server of tests
	envOfTests = module + "/internal/testenv" // the machine of tests
	csiDriver  = module + "/internal/csidriver"
)

// mayImport is the rule of imports inside the module: which top-level packages each
// top-level package may import. The top-level package of an import path is its first
// element below the module, so "runtime" stands for runtime, runtime/cri and so on; ""
// is the root package. A top-level package may always import itself.
//
// Package runtime/podspec computes what follows from a pod alone. It imports nothing else of the module, and every
// package may import it.
//
// Packages below "internal" have code that several packages would repeat otherwise. They
// import nothing else of the module, and every package but the examples may import them. Only
// tests import internal/apitest, internal/csidriver and internal/testenv, those of the examples, too.
var mayImport = map[string][]string{
	"internal":   {},
	"runtime":    {},
	"lifecycle":  {"runtime"},
	"podconfig":  {"runtime", "lifecycle"},
	"pleg":       {"runtime", "lifecycle"},
	"podworkers": {"runtime", "lifecycle"},
	"status":     {"runtime", "lifecycle"},
	"prober":     {"runtime", "lifecycle"},
	"gc":         {"runtime", "lifecycle"},
	"history":    {"runtime", "lifecycle"},
	"node":       {"runtime", "lifecycle"},
	"server":     {"runtime"},
	"syncloop":   {"runtime", "lifecycle", "podconfig", "pleg", "podworkers", "status", "prober", "gc", "node"},
	"":           {"runtime", "lifecycle", "podconfig", "pleg", "podworkers", "status", "prober", "gc", "history", "node", "syncloop"},
	"metrics":    {"", "runtime", "podconfig", "pleg", "podworkers", "status", "prober", "gc", "node", "syncloop"},
	"agenttest":  {"", "runtime", "podconfig", "status"},
	"cluster":    {"", "runtime", "lifecycle", "podconfig", "podworkers", "status", "history", "node", "syncloop"},
	"kubelet":    {"", "runtime", "lifecycle", "podconfig", "podworkers", "status", "prober", "gc", "history", "node", "syncloop", "server", "metrics", "pleg", "cluster"},
	"examples":   {"", "kubelet", "runtime", "lifecycle", "podconfig", "pleg", "podworkers", "status", "prober", "gc", "history", "node", "syncloop", "server", "metrics", "agenttest", "cluster"},
	"test":       {}, // tests only, of the module as a whole
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// TestImportRules asserts mayImport, and which packages may depend on which modules.
func TestImportRules(t *testing.T) {
	for _, p := range listPackages(t) {
		top := topLevel(p.ImportPath)
		allowed, ok := mayImport[top]
		require.Truef(t, ok, "%s: no rule for this package; add its top-level package to mayImport", p.ImportPath)
		for _, imp := range p.Imports {
			if imp == "github.com/fsnotify/fsnotify" && p.ImportPath != module+"/internal/fswatch" {
				t.Errorf("%s imports %s; only internal/fswatch may", p.ImportPath, imp)
			}
			if !ours(imp) {
				continue
			}
			if imp == apitest || imp == envOfTests || imp == csiDriver {
				t.Errorf("%s imports %s; only tests may", p.ImportPath, imp)
			}
			to := topLevel(imp)
			if imp == podspec || to == "internal" && top != "examples" {
				continue
			}
			if p.ImportPath == podspec || to != top && !slices.Contains(allowed, to) {
				t.Errorf("%s must not import %s: declare the interface that it needs in %s instead", p.ImportPath, imp,
					p.ImportPath)
			}
		}
		// The contract of a runtime and the decisions about a pod do not depend on CRI.
		if p.ImportPath == module+"/runtime" || p.ImportPath == module+"/runtime/plan" {
			for _, dep := range p.Deps {
				if strings.HasPrefix(dep, "k8s.io/cri-api") || strings.HasPrefix(dep, "google.golang.org/grpc") {
					t.Errorf("%s depends on %s", p.ImportPath, dep)
				}
			}
		}
		// The mux depends neither on manifests nor on secrets and config maps.
		if p.ImportPath == module+"/podconfig" {
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, module+"/podconfig/") && !strings.HasPrefix(imp, module+"/podconfig/internal/") {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
		whole := top == "kubelet" || top == "examples" // these link all others
		// The cgroups of pods are one package, which others do without.
		if p.ImportPath != module+"/node/cgroup" && !whole {
			for _, dep := range p.Deps {
				if strings.HasPrefix(dep, "github.com/opencontainers/cgroups") {
					t.Errorf("%s depends on %s; only node/cgroup may", p.ImportPath, dep)
				}
				if dep == "github.com/godbus/dbus/v5" && p.ImportPath != module+"/node/shutdown/logind" {
					t.Errorf("%s depends on %s; only node/shutdown/logind may", p.ImportPath, dep)
				}
			}
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "go.opentelemetry.io/") {
				t.Errorf("%s depends on %s; only the module metrics/tracing may", p.ImportPath, dep)
			}
		}
		if whole || top == "cluster" || p.ImportPath == apitest {
			continue
		}
		if top != "metrics" && slices.Contains(p.Deps, "github.com/prometheus/client_golang/prometheus") {
			t.Errorf("%s depends on the Prometheus client library; only packages below metrics may", p.ImportPath)
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/client-go") || strings.HasPrefix(dep, "k8s.io/component-base") {
				t.Errorf("%s depends on %s; only packages below cluster may", p.ImportPath, dep)
			}
		}
	}
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func topLevel(path string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), "/")
	return top
}

// listPackages lists the packages of the module.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	list, err := listOnce()
	require.NoError(t, err)
	return list
}

var listOnce = sync.OnceValues(func() (list []goPackage, err error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

// TestDependencies asserts what a program that imports one package does not link: none
// of the packages that match a pattern depends on the listed modules. The first pattern
// is the root package, so an agent on a runtime other than runtime/cri links no gRPC.
func TestDependencies(t *testing.T) {
	const grpc = "google.golang.org/grpc"
	libraries := []string{"github.com/emicklei/go-restful", "github.com/moby/spdystream", "golang.org/x/net/websocket"}
	except := []string{
		"/runtime/fake/criserver", "/metrics/prometheus/crimetrics", "/node/plugins", "/node/devices/plugin",
		"/node/podresources", "/node/podsapi", "/node/internal/localgrpc", "/node/dra/plugin",
	}
	all := listPackages(t)
	for pattern, forbidden := range map[string][]string{
		".":                  {grpc},
		"./runtime/fake/...": libraries,
		"./pleg/...":         {grpc},
		"./podworkers/...":   {grpc},
		"./status/...":       {grpc},
		"./syncloop/...":     {grpc},
		"./podconfig/...":    {grpc},
		"./prober/...":       {grpc},
		"./gc/...":           {grpc},
		"./node/...":         {grpc},
		"./server/...":       {grpc},
		"./metrics/...":      {grpc},
	} {
		found := false
		for _, p := range all {
			if !matches(pattern, p.ImportPath) || slices.Contains(except, strings.TrimPrefix(p.ImportPath, module)) {
				continue
			}
			found = true
			refused := forbidden
			if p.ImportPath != module+"/server/streams" {
				refused = slices.Concat(forbidden, libraries)
			}
			for _, dep := range p.Deps {
				for _, f := range refused {
					if dep == f || strings.HasPrefix(dep, f+"/") {
						t.Errorf("%s depends on %s", p.ImportPath, dep)
					}
				}
			}
		}
		require.True(t, found, pattern)
	}
}

// TestDependenciesWithoutDevices asserts that a program with an agent in a cluster links nothing for devices, unless it
// uses it.
func TestDependenciesWithoutDevices(t *testing.T) {
	found := false
	for _, p := range listPackages(t) {
		if p.ImportPath != module && !matches("./cluster/...", p.ImportPath) {
			continue
		}
		found = true
		for _, name := range []string{"devices", "dra", "plugins", "podresources", "podsapi", "placement"} {
			pattern := "./node/" + name + "/..."
			if i := slices.IndexFunc(p.Deps, func(dep string) bool { return matches(pattern, dep) }); i >= 0 {
				t.Errorf("%s depends on %s", p.ImportPath, p.Deps[i])
			}
		}
	}
	require.True(t, found)
}

// matches reports whether a pattern of [TestDependencies] has the package.
func matches(pattern, path string) bool {
	path = "." + strings.TrimPrefix(path, module)
	dir, tree := strings.CutSuffix(pattern, "/...")
	return path == dir || tree && strings.HasPrefix(path, dir+"/")
}
