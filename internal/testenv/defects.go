package testenv

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const defectVariable = "KUBELETKIT_DEFECT"

// Defect returns the name of the defect that the subject of a conformance suite is to have in this process. It is
// empty except in a process of [FindsDefects].
func Defect() string { return os.Getenv(defectVariable) }

// FindsDefects tests a conformance suite: it runs the test, which runs the suite, once for each defect, in a process
// that has it. There, the subtest that found has for the name of the defect must fail. Each of the subtests must find
// one, except those that the map without has, with the reason.
func FindsDefects(t *testing.T, test string, found map[string]string, subtests []string, without map[string]string) {
	t.Helper()
	if Defect() != "" {
		t.Skip("this is a process with a defect")
	}
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	finders := slices.Collect(maps.Values(found))
	for _, name := range subtests {
		if (without[name] == "") != slices.Contains(finders, name) {
			t.Errorf("subtest %s: either it finds a defect, or there is a reason that it finds none", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+test+"$/^"+found[name]+"$",
				"-test.v", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), defectVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("the suite does not find it:\n%s", out)
			} else if !strings.Contains(string(out), "--- FAIL: "+test+"/"+found[name]+" ") {
				t.Errorf("%s does not find it: %v\n%s", found[name], err, out)
			}
		})
	}
}
