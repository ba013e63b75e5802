package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// verdictNode is the node whose static pods are judged.
const verdictNode = "n"

// difference is something that the API server and podconfig see differently, for
// a reason. What it ignores does not count, whoever has said it.
type difference struct {
	why string
	// ignores reports whether a cause of a refusal is one of these.
	ignores func(m corpusPod, c cause) bool
	// rewrites what the API server says as what podconfig says.
	rewrites func(c cause) cause
	// respec reports whether the two may fill in the spec differently.
	respec func(m corpusPod) bool
}

func at(expr string) func(corpusPod, cause) bool {
	path := regexp.MustCompile(`^(` + expr + `)`)
	return func(_ corpusPod, c cause) bool { return path.MatchString(c.field) }
}

// differences are all that there are. docs/operate/differences/pods.md has them too.
var differences = []difference{
	{
		why: "A mirror pod and a UID that cannot name a directory cannot be run, so no node takes them; the API " +
			"server stores the one and replaces the other.",
		ignores: at(`metadata\.uid|metadata\.annotations\[kubernetes\.io/config\.mirror\]`),
	},
	{
		why:     "Finalizers are the business of controllers; nothing on a node looks at them.",
		ignores: at(`metadata\.finalizers`),
	},
	{
		why: "Annotations of alpha and beta times (seccomp, AppArmor, tolerations) and the deletion cost are not " +
			"read here: fields say it now, or a controller reads it. " +
			"The kubelet does not act on those of static pods either. The API server copies AppArmor's into the field.",
		ignores: func(m corpusPod, c cause) bool {
			return hasOldAnnotation(m) && (strings.HasPrefix(c.field, "metadata.annotations") ||
				c.kind == field.ErrorTypeForbidden && oldProfile.MatchString(c.field))
		},
		respec: hasOldAnnotation,
	},
	{
		why: "Resource claims are not there yet. A pod that has some is refused as static pods are; only who " +
			"allows API objects gets it through.",
		ignores: at(`spec\.resourceClaims|spec(\.\w+\[\d+\])?\.resources\.claims`),
	},
	{
		why:     "Ephemeral containers cannot be there when a pod is created, so what is in them is not looked at.",
		ignores: at(`spec\.ephemeralContainers\[`),
	},
	{
		why:     "Scheduling gates cannot be there when a pod has a node, so what is in them is not looked at.",
		ignores: at(`spec\.schedulingGates`),
	},
	{
		why: "The API server misspells a path.",
		rewrites: func(c cause) cause {
			c.field = strings.Replace(c.field, ".downwarAPI", ".downwardAPI", 1)
			return c
		},
	},
	{
		why: "A resource that a pod as a whole cannot have is unsupported. The API server calls it invalid if it " +
			"has never heard of it.",
		rewrites: func(c cause) cause {
			if unknownResource.MatchString(c.field) {
				c.kind = field.ErrorTypeNotSupported
			}
			return c
		},
	},
}

var (
	oldAnnotation = regexp.MustCompile(
		`^(container\.apparmor\.security\.beta|(container\.)?seccomp\.security\.alpha|scheduler\.alpha|controller)\.kubernetes\.io/`)
	// unknownResource are those of the corpus.
	unknownResource = regexp.MustCompile(`^spec\.resources\.\w+\[(gpu|UPPER|attachable-volumes-x)\]$`)
	oldProfile      = regexp.MustCompile(`\.(seccompProfile|appArmorProfile)\.(type|localhostProfile)$`)
)

func hasOldAnnotation(m corpusPod) bool {
	meta, _ := m.pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for key := range annotations {
		if oldAnnotation.MatchString(key) {
			return true
		}
	}
	return false
}

// TestVerdicts has a real API server and podconfig judge the same pods: they accept
// the same ones and make the same of them, and refuse the others with the same
// errors at the same fields.
//
// It is not parallel: it takes all cores for a while.
func TestVerdicts(t *testing.T) {
	server := harness.NewAPIServer(t)
	good, edited := corpus(t)
	all := append(good, edited...)
	require.Greater(t, len(all), 300)

	var mu sync.Mutex
	var disagreements []string
	observed := make([]bool, len(differences))
	accepted := 0
	start := time.Now()
	next := make(chan corpusPod)
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for m := range next {
				ours := judge(render(t, m.pod))
				theirs, err := ask(t.Context(), server, m.pod)
				mu.Lock()
				switch {
				case err != nil:
					disagreements = append(disagreements, fmt.Sprintf("%s: %v", m.name, err))
				default:
					if ours.pod != nil {
						accepted++
					}
					if d := compare(m, ours, theirs, observed); d != "" {
						disagreements = append(disagreements, fmt.Sprintf("%s: %s\n  podconfig:  %s\n  API server: %s",
							m.name, d, ours.text, theirs.text))
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range all {
		next <- m
	}
	close(next)
	wg.Wait()

	t.Logf("%d pods in %v, %d of them accepted", len(all), time.Since(start).Round(time.Second), accepted)
	const shown = 25
	if n := len(disagreements); n > 0 {
		slices.SortFunc(disagreements, func(a, b string) int { return len(a) - len(b) })
		t.Errorf("%d disagreements, the shortest are:\n%s", n, strings.Join(disagreements[:min(n, shown)], "\n"))
	}
	for i, d := range differences {
		assert.Truef(t, observed[i], "this difference is none any more: %s", d.why)
	}
}

// cause is one reason for which a pod is refused.
type cause struct {
	kind  field.ErrorType
	field string
}

// verdict is what somebody says of a pod.
type verdict struct {
	// pod with its defaults, if it was accepted.
	pod *v1.Pod
	// causes of the refusal of a pod that was understood; none if it was not.
	causes []cause
	// nameless says that there was no name to go on with.
	nameless bool
	text     string
}

// judge is the verdict of package manifest. The pods are like those of a URL, which get no
// tolerations that the manifest does not have.
func judge(data []byte) verdict {
	pods, err := manifest.Load(data, manifest.Options{
		NodeName: verdictNode, Source: manifest.SourceHTTP, Origin: "corpus",
		Allow: manifest.AllowedRefs{All: true},
	})
	if err == nil {
		return verdict{pod: pods[0], text: "good"}
	}
	v := verdict{text: err.Error()}
	var invalid *manifest.InvalidError
	var one *field.Error
	switch {
	case errors.As(err, &invalid):
		for _, e := range invalid.Errs {
			v.causes = append(v.causes, cause{e.Type, e.Field})
		}
	case errors.As(err, &one) && one.Type == field.ErrorTypeRequired && one.Field == "metadata.name":
		v.causes, v.nameless = []cause{{one.Type, one.Field}}, true
	}
	return v
}

// ask returns the API server's verdict on what a node makes of a manifest.
func ask(ctx context.Context, s *harness.APIServer, pod map[string]any) (verdict, error) {
	namespace, pod := static(pod)
	data, err := json.Marshal(pod)
	if err != nil {
		return verdict{}, err
	}
	status, answer, err := s.DryRunPod(ctx, namespace, data)
	if err != nil {
		return verdict{}, err
	}
	if status == http.StatusCreated {
		v := verdict{pod: &v1.Pod{}, text: "good"}
		return v, json.Unmarshal(answer, v.pod)
	}
	var refusal metav1.Status
	if err := json.Unmarshal(answer, &refusal); err != nil {
		return verdict{}, fmt.Errorf("%d %s: %w", status, answer, err)
	}
	v := verdict{text: refusal.Message}
	switch status {
	case http.StatusBadRequest:
	case http.StatusUnprocessableEntity:
		for _, c := range refusal.Details.Causes {
			v.causes = append(v.causes, cause{field.ErrorType(c.Type), c.Field})
		}
	default:
		return v, fmt.Errorf("%d: %s", status, answer)
	}
	return v, nil
}

// static gives a manifest what Normalize gives it and defaults do not.
func static(pod map[string]any) (namespace string, out map[string]any) {
	namespace, out = "default", maps.Clone(pod)
	if meta, ok := pod["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		if name, ok := meta["name"].(string); ok && name != "" {
			meta["name"] = name + "-" + verdictNode
		} else {
			// Who has no name is refused here, and would be given one there.
			delete(meta, "generateName")
		}
		if ns, ok := meta["namespace"].(string); ok && ns != "" {
			namespace = ns
		}
		out["metadata"] = meta
	}
	if spec, ok := pod["spec"].(map[string]any); ok {
		spec = maps.Clone(spec)
		spec["nodeName"] = verdictNode
		out["spec"] = spec
	}
	return namespace, out
}

// compare returns what two verdicts on a manifest disagree about, and notes which
// differences it has ignored.
func compare(m corpusPod, ours, theirs verdict, observed []bool) string {
	counts := func(c cause) bool {
		for i, d := range differences {
			if d.ignores != nil && d.ignores(m, c) {
				observed[i] = true
				return false
			}
		}
		return true
	}
	for i, c := range theirs.causes {
		for j, d := range differences {
			if d.rewrites != nil && d.rewrites(c) != c {
				theirs.causes[i], observed[j] = d.rewrites(c), true
			}
		}
	}
	ourCauses, theirCauses := filter(ours.causes, counts), filter(theirs.causes, counts)
	refused := func(v verdict, counting []cause) bool {
		return v.pod == nil && (len(counting) > 0 || len(v.causes) == 0)
	}
	switch a, b := refused(ours, ourCauses), refused(theirs, theirCauses); {
	case !a && b:
		return "accepted, and the API server refuses it"
	case a && !b:
		return "refused, and the API server accepts it"
	case !a && !b:
		return compareSpecs(m, ours, theirs, observed)
	case (len(ours.causes) == 0) != (len(theirs.causes) == 0):
		return "only one of the two has understood it"
	}
	for _, c := range ourCauses {
		if !slices.Contains(theirCauses, c) {
			return fmt.Sprintf("the API server does not have %s %s", c.kind, c.field)
		}
	}
	// Where much is wrong, one error may hide another.
	for _, c := range theirCauses {
		if m.edits <= 1 && !ours.nameless && !slices.Contains(ourCauses, c) {
			return fmt.Sprintf("the API server also has %s %s", c.kind, c.field)
		}
	}
	return ""
}

func filter(causes []cause, keep func(cause) bool) (kept []cause) {
	for _, c := range causes {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

// compareSpecs compares the defaults that were filled in.
func compareSpecs(m corpusPod, ours, theirs verdict, observed []bool) string {
	if ours.pod == nil || theirs.pod == nil || equality.Semantic.DeepEqual(ours.pod.Spec, theirs.pod.Spec) {
		return ""
	}
	for i, d := range differences {
		if d.respec != nil && d.respec(m) {
			observed[i] = true
			return ""
		}
	}
	a, _ := yaml.Marshal(ours.pod.Spec)
	b, _ := yaml.Marshal(theirs.pod.Spec)
	return fmt.Sprintf("the defaults differ: podconfig has\n%s\nand the API server has\n%s", a, b)
}
