package kubeletkit_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kubeletkit/kubeletkit"

// law says which rooms each room may import. A room is the first element of a
// package's path in the module; "" is the root. Every room may import itself.
//
// "internal" has what several packages would write twice otherwise; it imports
// nothing of the module but itself, and everything but the examples may import it.
var law = map[string][]string{
	"internal":   {},
	"runtime":    {},
	"podconfig":  {"runtime"},
	"podmanager": {"runtime"},
	"pleg":       {"runtime"},
	"podworkers": {"runtime"},
	"status":     {"runtime"},
	"prober":     {"runtime"},
	"gc":         {"runtime"},
	"volume":     {"runtime"},
	"server":     {"runtime"},
	"metrics":    {"", "runtime", "podconfig", "pleg", "podworkers", "status", "prober", "gc", "volume"},
	"podsync":    {"runtime", "podworkers", "status", "volume"},
	"syncloop":   {"runtime", "podconfig", "pleg", "podworkers", "prober"},
	"":           {"runtime", "podconfig", "podmanager", "pleg", "podworkers", "status", "prober", "gc", "volume", "podsync", "syncloop"},
	"examples":   {"", "runtime", "podconfig", "podmanager", "pleg", "podworkers", "status", "prober", "gc", "volume", "podsync", "syncloop", "server", "metrics"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// TestImportLaw keeps the import law by asking the go command.
func TestImportLaw(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		room := roomOf(p.ImportPath)
		allowed, ok := law[room]
		require.Truef(t, ok, "%s is in a room that the law does not know; say in this test what it may import", p.ImportPath)
		for _, imp := range p.Imports {
			if !ours(imp) {
				continue
			}
			to := roomOf(imp)
			if to == "internal" && room != "examples" {
				continue
			}
			if to != room && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: declare the interface that you need of it instead", p.ImportPath, imp)
			}
		}
		// The ground: what is not runtime/cri works for any runtime.
		if p.ImportPath == module+"/runtime" || p.ImportPath == module+"/runtime/plan" {
			for _, dep := range p.Deps {
				if strings.HasPrefix(dep, "k8s.io/cri-api") || strings.HasPrefix(dep, "google.golang.org/grpc") {
					t.Errorf("%s depends on %s", p.ImportPath, dep)
				}
			}
		}
		// The mux takes pods from anywhere: it reads no manifests and holds no objects.
		if p.ImportPath == module+"/podconfig" {
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, module+"/podconfig/") {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
		if room == "examples" {
			continue
		}
		if roomOf(p.ImportPath) != "metrics" && slices.Contains(p.Deps, "github.com/prometheus/client_golang/prometheus") {
			t.Errorf("%s depends on the Prometheus client library; only metrics/prometheus may", p.ImportPath)
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/client-go") || strings.HasPrefix(dep, "k8s.io/component-base") {
				t.Errorf("%s depends on %s; only a room for the API server may", p.ImportPath, dep)
			}
		}
	}
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func roomOf(path string) string {
	room, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), "/")
	return room
}

func listPackages(t *testing.T, pattern string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", pattern)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	require.NoError(t, err)
	var list []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// TestDependencies keeps what an importer of one package pays for: none of these
// packages, nor a package under it, may depend on the listed modules.
func TestDependencies(t *testing.T) {
	const grpc = "google.golang.org/grpc"
	streaming := []string{"github.com/emicklei/go-restful", "github.com/moby/spdystream", "golang.org/x/net/websocket"}
	for pkg, forbidden := range map[string][]string{
		"runtime/fake": streaming, // but for criserver
		"pleg":         {grpc},
		"podworkers":   {grpc},
		"status":       {grpc},
		"syncloop":     {grpc},
		"podsync":      {grpc},
		"prober":       {grpc},
		"podconfig":    {grpc},
		"volume":       {grpc},
		"gc":           {grpc},
		"podmanager":   {grpc},
		".":            {grpc},
		"metrics":      {grpc}, // but for crimetrics
	} {
		found := false
		pattern := "./" + pkg + "/..."
		if pkg == "." {
			pattern = "." // an agent on a runtime of one's own
		}
		for _, p := range listPackages(t, pattern) {
			if p.ImportPath == module+"/runtime/fake/criserver" || p.ImportPath == module+"/metrics/prometheus/crimetrics" {
				continue
			}
			found = true
			for _, dep := range p.Deps {
				for _, f := range append(forbidden, streaming...) {
					if dep == f || strings.HasPrefix(dep, f+"/") {
						t.Errorf("%s depends on %s", p.ImportPath, dep)
					}
				}
			}
		}
		require.True(t, found, pkg)
	}
}
