package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// manifestText is one text of TestManifestsAsKubelet. Its name says how it was made.
type manifestText struct {
	name string
	text []byte
}

// sourceVerdict is what a source of pods makes of a text: pods, or an error.
type sourceVerdict struct {
	Pods  []*v1.Pod `json:"pods"`
	Error string    `json:"error"`
}

func (v sourceVerdict) String() string {
	if v.Error != "" {
		return "refused: " + v.Error
	}
	return fmt.Sprintf("%d pods", len(v.Pods))
}

// manifestDifference is a difference from kubelet.
type manifestDifference struct {
	why string
	// version is the version of kubelet that differs, "" for each.
	version string
	// here and there match the error of the only one of podconfig and kubelet that refuses a text.
	here, there *regexp.Regexp
	// without takes out of a pod what differs if both have it.
	without func(pod *v1.Pod)
}

func (d *manifestDifference) covers(version string, ours, theirs sourceVerdict) bool {
	switch {
	case d.version != "" && d.version != version:
		return false
	case ours.Error != "":
		return d.here != nil && d.here.MatchString(ours.Error)
	case theirs.Error != "":
		return d.there != nil && d.there.MatchString(theirs.Error)
	default:
		return d.without != nil && differentPods(ours.Pods, theirs.Pods, d.without) == ""
	}
}

// manifestDifferences are all that there are. docs/operate/differences/pods.md has them too.
var manifestDifferences = []manifestDifference{
	{
		why:  "The UID names the pod's directory. A mirror pod is the API server's copy.",
		here: regexp.MustCompile(`metadata\.(uid|annotations\[kubernetes\.io/config\.mirror\])`),
	},
	{
		why: "Nothing on a node acts on these fields.",
		there: regexp.MustCompile(`metadata\.finalizers|spec\.affinity|spec\.topologySpreadConstraints|` +
			`spec\.schedulingGroup|spec\.volumes\[\d+\]\.(nfs|fc|iscsi|rbd)|[wW]indowsOptions|hostProcess`),
	},
	{
		why: "Annotations of alpha and beta times, and the deletion cost, are not read.",
		there: regexp.MustCompile(`metadata\.annotations: Invalid value: "scheduler\.alpha|metadata\.annotations\.scheduler\.alpha|` +
			`metadata\.annotations.*(apparmor|seccomp)|type in annotation and field must match|pod-deletion-cost`),
	},
	{
		why: "RBD volumes, which nothing provides, get no defaults.",
		without: func(pod *v1.Pod) {
			for i := range pod.Spec.Volumes {
				pod.Spec.Volumes[i].RBD = nil
			}
		},
	},
	{
		why:  "A number that is too large for JSON's decoder, in a field that is not known.",
		here: regexp.MustCompile(`cannot unmarshal number 1e999`),
	},
	{
		why:     "The requests of a pod as a whole are filled in from its containers, as by an API server and kubelet 1.36.",
		version: "1.37", without: func(pod *v1.Pod) { pod.Spec.Resources = nil },
	},
	{
		why:     "An image volume without a reference, which kubelet refuses since 1.37.",
		version: "1.36", here: regexp.MustCompile(`image\.reference: Required value`),
	},
	{
		why: "Fields that are new in 1.37, which kubelet 1.36 ignores.", version: "1.36",
		here: regexp.MustCompile(`emptyDir\.mode|grpc\.mode|httpGet\.protocol|bindMountOptions|[uU]ser: Invalid value`),
		without: func(pod *v1.Pod) {
			withoutNewFields(reflect.ValueOf(&pod.Spec))
		},
	},
}

// withoutNewFields empties the fields that are new in Kubernetes 1.37.
func withoutNewFields(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			withoutNewFields(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			withoutNewFields(v.Index(i))
		}
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[v1.Pod]().PkgPath() {
			return
		}
		for f, value := range v.Fields() {
			switch v.Type().Name() + "." + f.Name {
			case "EmptyDirVolumeSource.Mode", "GRPCAction.Mode", "HTTPGetAction.Protocol", "VolumeMount.BindMountOptions",
				"KeyToPath.User", "DownwardAPIVolumeFile.User", "ServiceAccountTokenProjection.User",
				"ClusterTrustBundleProjection.User", "PodCertificateProjection.User", "SecretVolumeSource.DefaultUser",
				"ConfigMapVolumeSource.DefaultUser", "DownwardAPIVolumeSource.DefaultUser",
				"ProjectedVolumeSource.DefaultUser":
				value.SetZero()
			default:
				withoutNewFields(value)
			}
		}
	}
}

// TestManifestsAsKubelet gives the texts of manifests to kubelet's own sources of files and URLs, and to package
// manifest as the agent uses it in the place of a kubelet: both refuse the same texts, and make the same pods of the
// others.
func TestManifestsAsKubelet(t *testing.T) {
	texts := manifestTexts(t)
	observed := make([]atomic.Bool, len(manifestDifferences))
	t.Run("all", func(t *testing.T) {
		for _, kind := range []string{"file", "url"} {
			ours := make([]sourceVerdict, len(texts))
			for i := range texts {
				ours[i] = readAsKubelet(kind, texts[i].text)
			}
			for tool, version := range map[string]string{"reference": "1.37", "reference-1.36": "1.36"} {
				t.Run(kind+" "+version, func(t *testing.T) {
					t.Parallel()
					compareSources(t, version, texts, ours, askKubelet(t, tool, kind, texts), observed)
				})
			}
		}
	})
	for i := range manifestDifferences {
		assert.True(t, observed[i].Load(), "this difference is none any more: %s", manifestDifferences[i].why)
	}
}

func compareSources(t *testing.T, version string, texts []manifestText, ours, theirs []sourceVerdict,
	observed []atomic.Bool) {
	require.Len(t, theirs, len(texts))
	var disagreements []string
	accepted := 0
	for i, m := range texts {
		if theirs[i].Error == "" {
			accepted++
		}
		difference := ""
		switch {
		case ours[i].Error != "" && theirs[i].Error != "":
		case ours[i].Error != theirs[i].Error:
			difference = fmt.Sprintf("%s, kubelet: %s", ours[i], theirs[i])
		default:
			difference = differentPods(ours[i].Pods, theirs[i].Pods, nil)
		}
		if difference == "" {
			continue
		}
		at := slices.IndexFunc(manifestDifferences,
			func(d manifestDifference) bool { return d.covers(version, ours[i], theirs[i]) })
		if at < 0 {
			disagreements = append(disagreements, fmt.Sprintf("%s: %s", m.name, difference))
		} else {
			observed[at].Store(true)
		}
	}
	t.Logf("%d texts, of which kubelet has pods of %d", len(texts), accepted)
	const shown = 40
	slices.SortFunc(disagreements, func(a, b string) int { return len(a) - len(b) })
	assert.Empty(t, disagreements[:min(shown, len(disagreements))], "%d disagreements", len(disagreements))
}

// differentPods returns the first difference, without what is to be left out.
func differentPods(ours, theirs []*v1.Pod, without func(*v1.Pod)) string {
	if len(ours) != len(theirs) {
		return fmt.Sprintf("%d pods, kubelet has %d", len(ours), len(theirs))
	}
	for i := range ours {
		a, b := comparablePod(ours[i]), comparablePod(theirs[i])
		if without != nil {
			without(a)
			without(b)
		}
		if !equality.Semantic.DeepEqual(a, b) {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			at := 0
			for at < min(len(x), len(y)) && x[at] == y[at] {
				at++
			}
			from := max(0, at-60)
			return fmt.Sprintf("%.150s, kubelet: %.150s", x[min(from, len(x)):], y[min(from, len(y)):])
		}
	}
	return ""
}

// comparablePod returns the pod without what differs by design: derived UIDs, the annotation that kubelet adds later, and
// the status.
func comparablePod(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	if string(pod.UID) == pod.Annotations[podspec.AnnotationConfigHash] {
		pod.UID = ""
	}
	delete(pod.Annotations, podspec.AnnotationConfigHash)
	delete(pod.Annotations, podspec.AnnotationConfigSource)
	pod.Kind, pod.APIVersion, pod.Status = "", "", v1.PodStatus{}
	return pod
}

// readAsKubelet is the verdict of package manifest.
func readAsKubelet(kind string, text []byte) sourceVerdict {
	opts := manifest.Options{NodeName: verdictNode, Source: manifest.SourceFile, Origin: "source", Warn: func(error) {}}
	if kind == "url" {
		opts.Source = manifest.SourceHTTP
	}
	pods, err := manifest.Load(text, opts)
	if err != nil {
		return sourceVerdict{Error: err.Error()}
	}
	return sourceVerdict{Pods: pods}
}

// askKubelet is the verdict of kubelet.
func askKubelet(t *testing.T, tool, kind string, texts []manifestText) (verdicts []sourceVerdict) {
	t.Helper()
	all := make([][]byte, len(texts))
	for i := range texts {
		all[i] = texts[i].text
	}
	in, err := json.Marshal(all)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), harness.ReferenceBinary(t, tool), "manifests", kind, verdictNode)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &stderr
	require.NoError(t, cmd.Run(), "%.1000s", stderr.String())
	require.NoError(t, json.Unmarshal(out.Bytes(), &verdicts))
	return verdicts
}

// manifestTexts returns the corpus: pods as vendors write them, those of TestVerdicts, mutations of their fields, and
// mutations of their text. It is the same in each run.
func manifestTexts(t *testing.T) (texts []manifestText) {
	random := rand.New(rand.NewPCG(3, 4))
	var written []manifestText
	for _, pattern := range []string{"testdata/manifests/*", "testdata/verdicts/*"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			written = append(written, manifestText{strings.TrimPrefix(path, "testdata/"), text})
		}
	}
	texts = append(texts, written...)
	good, edited := corpus(t)
	for _, m := range append(good, edited...) {
		if random.IntN(8) == 0 { // TestVerdicts has them all
			texts = append(texts, manifestText{m.name, render(t, m.pod)})
		}
	}
	for _, m := range written {
		var pod map[string]any
		if yaml.Unmarshal(m.text, &pod) == nil && pod["kind"] == "Pod" && !strings.HasPrefix(m.name, "verdicts/") {
			of := corpusPod{name: m.name, pod: parse(t, render(t, pod))}
			for _, e := range edits(nil, of.pod) {
				if random.IntN(3) > 0 {
					continue
				}
				texts = append(texts, manifestText{e.on(of).name, render(t, e.on(of).pod)})
			}
		}
		json := m
		if data, err := yaml.YAMLToJSON(m.text); err == nil {
			json = manifestText{m.name + " as JSON", data}
		}
		for i := range textMutations {
			for range 15 {
				m := m
				if random.IntN(3) == 0 {
					m = json
				}
				texts = append(texts, manifestText{fmt.Sprintf("%s, mutation %d", m.name, i), textMutations[i](random, m.text)})
			}
		}
	}
	return texts
}
