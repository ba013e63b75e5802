package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// minimal is a valid manifest that the cases vary.
const minimal = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: busybox
`

func loadOptions() manifest.Options {
	return manifest.Options{NodeName: "node", Origin: "/manifests/web.yaml"}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in    string
		names []string // of the pods
		err   string   // part of the message
	}{
		"a pod":                    {in: minimal, names: []string{"web"}},
		"JSON":                     {in: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`, names: []string{"web"}},
		"JSON after space":         {in: "\n {\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"web\"}}\n", names: []string{"web"}},
		"byte order mark":          {in: "\xef\xbb\xbf" + minimal, names: []string{"web"}},
		"carriage returns":         {in: strings.ReplaceAll(minimal, "\n", "\r\n"), names: []string{"web"}},
		"a list":                   {in: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n", names: []string{"a", "b"}},
		"an empty list":            {in: "apiVersion: v1\nkind: PodList\nitems: []\n", names: nil},
		"a list as kubectl writes": {in: "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n", names: []string{"a"}},
		"no items":                 {in: "apiVersion: v1\nkind: PodList\n", names: nil},
		"aliases":                  {in: strings.Replace(minimal, "name: web", "name: &n web\n  labels: {app: *n}", 1), names: []string{"web"}},
		"merge key":                {in: minimal + "    env:\n    - &e {name: A, value: a}\n    - <<: [*e]\n", names: []string{"web"}},
		"documents":                {in: "# head\n---\n" + minimal + "---\n# nothing\n--- # again\n" + minimal + "...\n", names: []string{"web", "web"}},
		"document after marker":    {in: "--- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n", names: []string{"a"}},
		"marker inside a block":    {in: minimal + "    args:\n    - |\n      ---\n      x\n", names: []string{"web"}},

		"empty":                 {in: "", err: "the manifest is empty"},
		"comments only":         {in: "# x\n---\n", err: "the manifest is empty"},
		"no object":             {in: "hello", err: "not a manifest: want an object with apiVersion and kind"},
		"no kind":               {in: "apiVersion: v1\n", err: "kind: Required value"},
		"another kind":          {in: "apiVersion: v1\nkind: ConfigMap\n", err: `kind: Unsupported value: "ConfigMap": supported values: "Pod", "PodList"`},
		"another version":       {in: "apiVersion: apps/v1\nkind: Pod\n", err: `apiVersion: Unsupported value: "apps/v1"`},
		"another kind in list":  {in: "apiVersion: v1\nkind: PodList\nitems:\n- kind: Secret\n  metadata: {name: a}\n", err: `items[0].kind: Unsupported value: "Secret": supported values: "Pod"`},
		"unknown field":         {in: minimal + "    imagee: x\n", err: `unknown field "spec.containers[0].imagee"`},
		"unknown field in list": {in: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a, nme: b}\n", err: `unknown field "items[0].metadata.nme"`},
		"unknown field of list": {in: "apiVersion: v1\nkind: PodList\nitem: []\n", err: `unknown field "item"`},
		"duplicate field":       {in: minimal + "    image: x\n", err: `line 9: duplicate field "spec.containers[0].image"`},
		"duplicate JSON field":  {in: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}`, err: `duplicate field "metadata.name"`},
		"YAML syntax":           {in: "a: [", err: "yaml: line 1"},
		"JSON syntax":           {in: "{\n\"a\": 1,\n\"b\" [\n}", err: "line 3: invalid character"},
		"second document bad":   {in: minimal + "---\nkind: Pod\n", err: "document 2 (line 9): apiVersion"},
		"wrong case":            {in: "apiVersion: v1\nkind: Pod\nMetadata: {name: a}\n", err: `unknown field "Metadata"`},
		"text for a number":     {in: minimal + "    ports: [{containerPort: http}]\n", err: `spec.containers[0].ports[0].containerPort: Invalid value: "http": must be an integer of 32 bits`},
		"boolean for a text": {in: minimal + "    command: [y]\n", err: `spec.containers[0].command[0]: Invalid value: true: ` +
			"must be a string; y, yes, on, n, no and off are booleans without quotes"},
		"number for a text":  {in: minimal + "    command: [1]\n", err: `spec.containers[0].command[0]: Invalid value: 1: must be a string`},
		"too great a number": {in: minimal + "    ports: [{containerPort: 99999999999}]\n", err: `spec.containers[0].ports[0].containerPort: Invalid value: 99999999999: must be an integer of 32 bits`},
		"text for a flag":    {in: minimal + "    tty: maybe\n", err: `spec.containers[0].tty: Invalid value: "maybe": must be true or false`},
		"list for an object": {in: "apiVersion: v1\nkind: Pod\nspec: []\n", err: `spec: Invalid value: must be an object`},
		"object for a list":  {in: "apiVersion: v1\nkind: Pod\nspec: {containers: {}}\n", err: `spec.containers: Invalid value: must be a list`},
		"quantity": {in: minimal + "    resources: {limits: {memory: 12Q}}\n",
			err: `spec.containers[0].resources.limits[memory]: Invalid value: "12Q": quantities must match the regular expression`},
		"quantity in list": {in: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {volumes: [{name: v, emptyDir: {sizeLimit: much}}]}\n",
			err: `items[0].spec.volumes[0].emptyDir.sizeLimit: Invalid value: "much"`},
		"items not a list":        {in: "apiVersion: v1\nkind: PodList\nitems: 3\n", err: "items: Invalid value: must be a list"},
		"null in a list":          {in: "apiVersion: v1\nkind: PodList\nitems: [null]\n", err: "items[0]: Invalid value: null: must be an object"},
		"another version in list": {in: "apiVersion: v1\nkind: PodList\nitems: [{kind: Pod, apiVersion: v2}]\n", err: `items[0].apiVersion: Unsupported value: "v2"`},
		"another kind in a List":  {in: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Service}]\n", err: `items[0].kind: Unsupported value: "Service"`},
		"no kind in a List":       {in: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]\n", err: "items[0].kind: Required value: want Pod"},
		"a number as kind":        {in: "apiVersion: v1\nkind: 3\n", err: "kind: Invalid value: 3: must be a string"},
		"duplicates in lists": {in: "apiVersion: v1\nkind: PodList\nitems:\n- metadata:\n    name: a\n    name: b\n- spec: {}\n  spec: {}\n",
			err: `line 6: duplicate field "items[0].metadata.name"; line 8: duplicate field "items[1].spec"`},
		"duplicate in a document": {in: minimal + "---\n" + minimal + "    image: x\n", err: `document 2 (line 9): line 18: duplicate field "spec.containers[0].image"`},
		"duplicate after a head":  {in: "# head\n\n---\n" + minimal + "    image: x\n", err: `line 12: duplicate field "spec.containers[0].image"`},
		"syntax in a document":    {in: minimal + "---\na: [\n---\n" + minimal, err: "document 2 (line 9): yaml: line 10:"},
		"merge key overridden":    {in: minimal + "    env:\n    - &e {name: A, value: a}\n    - <<: *e\n      value: b\n", names: []string{"web"}},
		"duplicate beside a merge": {in: minimal + "    env:\n    - &e {name: A, value: a}\n    - <<: *e\n      value: b\n    image: x\n",
			err: `duplicate field "spec.containers[0].image"`},
		"text after an object": {in: `{"apiVersion":"v1"}}}`, err: "line 1: invalid character '}' after top-level value"},
		"two objects":          {in: asJSON + "\n" + asJSON, err: "line 2: invalid character '{' after top-level value"},
		"two objects as YAML":  {in: "---\n" + asJSON + "\n" + asJSON, err: "text follows that does not belong to the document"},
		"two objects in flow":  {in: "{apiVersion: v1, kind: Pod}{}", err: "text follows that does not belong to the document"},
		"a trailing comma":     {in: strings.Replace(asJSON, `"a"}`, `"a",}`, 1), err: "invalid character '}' looking for"},
		"a fraction in JSON":   {in: strings.Replace(asJSON, "{}", `{"activeDeadlineSeconds":80.0}`, 1), err: "spec.activeDeadlineSeconds: Invalid value: \"80.0\": must be an integer"},
		"a fraction in a list": {in: `{"apiVersion":"v1","kind":"PodList","items":[{"spec":{"activeDeadlineSeconds":8e1}}]}`, err: "items[0].spec.activeDeadlineSeconds: Invalid value"},
		"a fraction in YAML":   {in: minimal + "  activeDeadlineSeconds: 80.0\n", names: []string{"web"}},
		"a directive":          {in: "%YAML 1.1\n# head\n---\n" + minimal, names: []string{"web"}},
		"a directive and more": {in: "%YAML 1.1\n---\n" + minimal + "---\n" + minimal, names: []string{"web", "web"}},
		"another YAML":         {in: "%YAML 1.2\n---\n" + minimal, err: "incompatible YAML document"},
		"a group without name": {in: strings.Replace(minimal, ": v1", ": /v1", 1), names: []string{"web"}},
		"text after the end":   {in: minimal + "...\nnothing\n", err: "document 2 (line 10): not a manifest"},
		"a key of two types":   {in: minimal + "    env: [{1: a, '1': b}]\n", err: `field "1" is given twice, as a string and as a number or boolean`},
		"a key that is null":   {in: minimal + "    env: [{~: a}]\n", err: "a key must be a string, not <nil>"},
		"bad time":             {in: "apiVersion: v1\nkind: Pod\nmetadata: {creationTimestamp: today}\n", err: `metadata.creationTimestamp: Invalid value: "today"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := manifest.Decode([]byte(tc.in), manifest.Options{})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, m := range got {
				names = append(names, m.Pod.Name)
				assert.Equal(t, "Pod", m.Pod.Kind)
			}
			assert.Equal(t, tc.names, names)
		})
	}
}

// asJSON is a pod as a JSON object.
const asJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{}}`

const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"

// With Warn, Decode reads what kubelet reads, and tells what it ignores.
func TestDecodeAsKubelet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in, source string
		kinds      []string
		names      []string
		warnings   []string
		err        string
	}{
		"nothing ignored": {in: minimal + "---\n# the end\n", names: []string{"web"}},
		"an unknown field": {in: minimal + "  volumes: [{name: conf, empty-dir: {}}]\n", names: []string{"web"},
			warnings: []string{`unknown field "spec.volumes[0].empty-dir"`}},
		"a duplicated field": {in: minimal + "    image: x\n", names: []string{"web"},
			warnings: []string{`line 9: duplicate field "spec.containers[0].image"`}},
		"a duplicated field in JSON": {in: strings.Replace(asJSON, `"a"`, `"a","name":"b"`, 1), names: []string{"b"},
			warnings: []string{`duplicate field "metadata.name"`}},
		"objects that are merged": {in: strings.Replace(asJSON, "{}", `{},"metadata":{"labels":{}}`, 1), names: []string{"a"},
			warnings: []string{`duplicate field "metadata"`}},
		"holders of anchors": {in: "x-name: &n {name: a}\napiVersion: v1\nkind: Pod\nmetadata:\n  <<: *n\n  name: b\n", names: []string{"b"},
			warnings: []string{`unknown field "x-name"`}},
		"documents": {in: minimal + "---\nkind: Pod\nmetadata: {name: two}\n---\nx\n", names: []string{"web"},
			warnings: []string{"only the first document is used, as by kubelet, not Pod two in line 9, the text in line 12"}},
		"text after the end": {in: minimal + "...\nnothing: [\n", names: []string{"web"},
			warnings: []string{"only the first document is used, as by kubelet, not the text in line 10"}},
		"two objects as YAML": {in: "---\n" + asJSON + "\n}}}", names: []string{"a"},
			warnings: []string{"only the first document is used, as by kubelet, not the text after it"}},
		"two objects": {in: asJSON + asJSON, err: "after top-level value"},
		"objects": {in: secret + "---\n" + secret + "spec: 1\n", kinds: []string{"Pod", "Secret"}, names: []string{"s", "s"},
			warnings: []string{`document 2 (line 4): unknown field "spec"`}},
		"a pod and objects": {in: minimal + "---\n" + secret, kinds: []string{"Pod", "Secret"}, names: []string{"web"},
			warnings: []string{"not Secret s in line 9"}},
		"an empty document":  {in: "---\n---\n" + minimal, err: "not a manifest"},
		"not a pod at first": {in: "kind: Service\n---\n" + minimal, err: `kind: Unsupported value: "Service"`},
		"flow style":         {in: strings.ReplaceAll(asJSON, `"`, ""), err: "invalid character"},
		"a list in a file":   {in: "apiVersion: v1\nkind: PodList\nitems: []\n", err: `kind: Unsupported value: "PodList": supported values: "Pod"`},
		"a list of a URL":    {in: "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n", source: manifest.SourceHTTP, names: []string{"a"}},
		"any list of a URL":  {in: "apiVersion: v1\nkind: List\nitems: []\n", source: manifest.SourceHTTP, err: "kind: Unsupported value"},
		"objects and a pod":  {in: secret + "---\n" + minimal, kinds: []string{"Pod", "Secret"}, err: `document 2 (line 4): kind: Unsupported value: "Pod"`},
		"a pod in a list": {in: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n", kinds: []string{"Pod", "Secret"},
			err: `items[0].kind: Unsupported value: "Pod"`},
		"many more documents": {in: minimal + strings.Repeat("---\na\n", 1000), names: []string{"web"}, warnings: []string{"the text in line 9, the text in line 11, the text in line 13, the text in line 15, the text in line 17, 995 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var warnings []string
			got, err := manifest.Decode([]byte(tc.in), manifest.Options{Source: tc.source, Kinds: tc.kinds,
				Warn: func(err error) { warnings = append(warnings, err.Error()) }})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, m := range got {
				if m.Pod != nil {
					names = append(names, m.Pod.Name)
				} else {
					names = append(names, m.Object.GetName())
				}
			}
			assert.Equal(t, tc.names, names)
			require.Len(t, warnings, len(tc.warnings), "%s", warnings)
			for i, want := range tc.warnings {
				assert.Contains(t, warnings[i], want)
			}
		})
	}
}

// TestAliasesAreBounded has short YAML that stands for much text.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	// Each is 10 of the one before.
	laughs := "a0: &a0 " + strings.Repeat("ha ", 10) + "\n"
	for i := range 9 {
		laughs += "a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" +
			strings.Repeat("*a"+string(rune('0'+i))+", ", 10) + "]\n"
	}
	long := "metadata:\n  annotations:\n    a: &a " + strings.Repeat("x", 1<<20) + "\n    b: [" +
		strings.Repeat("*a, ", 10_000) + "]\n"
	half := strings.Replace(long, strings.Repeat("*a, ", 10_000), strings.Repeat("*a, ", 6), 1)
	pod := "apiVersion: v1\nkind: Pod\n"
	for name, tc := range map[string]struct{ in, err string }{
		"laughs":         {pod + laughs, "document contains excessive aliasing"},
		"a long text":    {pod + long, "manifest is larger than 10 MiB, with each YAML alias written out"},
		"two documents":  {strings.Repeat("---\n"+pod+strings.Replace(half, "b: [", "b: x\n  finalizers: [", 1), 2), "document 2 (line 9): manifest is larger than 10 MiB"},
		"itself":         {pod + "a: &a [*a]\n", "anchor 'a' value contains itself"},
		"no such anchor": {pod + "a: *b\n", "unknown anchor 'b' referenced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := manifest.Decode([]byte(tc.in), manifest.Options{})
			require.ErrorContains(t, err, tc.err)
			if strings.Contains(tc.err, "10 MiB") {
				require.ErrorIs(t, err, manifest.ErrTooLarge)
			}
		})
	}
}

func TestDecodeTooLarge(t *testing.T) {
	t.Parallel()
	_, err := manifest.Decode(make([]byte, manifest.MaxSize+1), manifest.Options{})
	require.ErrorIs(t, err, manifest.ErrTooLarge)
	require.EqualError(t, err, "manifest is larger than 10 MiB")
}

func TestDecodeLenient(t *testing.T) {
	t.Parallel()
	var warnings []string
	opts := manifest.Options{Warn: func(err error) { warnings = append(warnings, err.Error()) }}
	got, err := manifest.Decode([]byte(minimal+"    image: other\n    imagee: x\n"), opts)
	require.NoError(t, err)
	assert.Equal(t, "other", got[0].Pod.Spec.Containers[0].Image)
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0], `line 9: duplicate field "spec.containers[0].image"`)
	assert.Contains(t, warnings[1], `unknown field "spec.containers[0].imagee"`)
}

// maxError is the maximum length of an error in bytes.
const maxError = 7000

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<16)
	var many strings.Builder
	for range 1000 {
		many.WriteString("  - {name: A, image: b}\n")
	}
	for name, in := range map[string]string{
		"unknown field": minimal + "    " + long + ": 1\n",
		"long name":     strings.Replace(minimal, "name: web", "name: "+long, 1),
		"long kind":     "apiVersion: v1\nkind: " + long + "\n",
		"long number":   minimal + "    stdin: " + long + "\n",
		"many errors":   minimal + many.String(),
	} {
		_, err := manifest.Load([]byte(in), loadOptions())
		if assert.Error(t, err, name) {
			assert.Less(t, len(err.Error()), maxError, name)
		}
	}
}

func TestUIDFollowsContent(t *testing.T) {
	t.Parallel()
	uid := func(in string, change func(o *manifest.Options)) string {
		opts := loadOptions()
		if change != nil {
			change(&opts)
		}
		pods, err := manifest.Load([]byte(in), opts)
		require.NoError(t, err)
		return string(pods[0].UID)
	}
	base := uid(minimal, nil)
	assert.Equal(t, base, uid("# comment\n"+minimal, nil), "comment")
	assert.Equal(t, base,
		uid(
			`{"kind":"Pod","spec":{"containers":[{"image":"busybox","name":"main"}]},"metadata":{"name":"web"},"apiVersion":"v1"}`, nil), "JSON, other order")
	assert.Equal(t, base, uid(minimal+"    stdin: false\n", nil), "a default spelt out")
	assert.NotEqual(t, base, uid(minimal+"status: {phase: Running}\n", nil), "status")
	assert.NotEqual(t, base, uid(strings.Replace(minimal, "busybox", "busybox:2", 1), nil), "image")
	assert.NotEqual(t, base, uid(minimal, func(o *manifest.Options) { o.NodeName = "other" }), "node")
	assert.NotEqual(t, base, uid(minimal, func(o *manifest.Options) { o.Origin = "/other" }), "file")
	assert.NotEqual(t, base, uid(minimal, func(o *manifest.Options) { o.Source = manifest.SourceHTTP }), "kind")
	assert.Equal(t, "given", uid(strings.Replace(minimal, "name: web", "name: web\n  uid: given", 1), nil), "given")
}

// Options.UID decides the UID of a pod whose manifest has none. The hash that it receives must never change: records on
// disk have it.
func TestUIDIsDecided(t *testing.T) {
	t.Parallel()
	asked := map[string]string{}
	load := func(in, origin string) (uid, annotation string) {
		opts := loadOptions()
		opts.Origin = origin
		opts.UID = func(pod *v1.Pod, manifest string) types.UID {
			asked[manifest] = string(pod.UID)
			assert.Equal(t, v1.RestartPolicyAlways, pod.Spec.RestartPolicy, "it is complete")
			return "decided"
		}
		pods, err := manifest.Load([]byte(in), opts)
		require.NoError(t, err)
		return string(pods[0].UID), pods[0].Annotations[podspec.AnnotationConfigHash]
	}
	uid, annotation := load(minimal, loadOptions().Origin)
	assert.Equal(t, []string{"decided", "decided"}, []string{uid, annotation})
	assert.Equal(t,
		map[string]string{
			"885303e3c27e1c58c997adbe481a834287e0d65ece63459777cb76c1d2d7c8b6": "98c3dc14468d6edff7e890ec10b3aa5c"}, asked)
	load("# comment\n"+minimal, loadOptions().Origin)
	assert.Len(t, asked, 1)
	load(minimal, "/other")
	load(strings.Replace(minimal, "busybox", "busybox:2", 1), "/other")
	assert.Len(t, asked, 3)
	uid, annotation = load(strings.Replace(minimal, "name: web", "name: web\n  uid: given", 1), "/given")
	assert.Equal(t, []string{"given", "given"}, []string{uid, annotation})
	assert.Len(t, asked, 3)
}

func FuzzDecodeManifest(f *testing.F) {
	for _, seed := range []string{
		minimal, "", "---", "{}", "[]", "a: &a [*a]", "kind: PodList\napiVersion: v1\nitems: [null, {}]",
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[null]}}`,
		minimal + "    resources: {limits: {cpu: 1e400}}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{}], hostNetwork: true, resources: " +
			"{limits: {hugepages-0: 1}}}",
		minimal + "    livenessProbe: {httpGet: {port: x}}\n    env: [{name: a, valueFrom: {fieldRef: {fieldPath: " +
			"\"metadata.labels['\"}}}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		opts := loadOptions()
		pods, err := manifest.Load(data, opts)
		if err != nil {
			assert.Less(t, len(err.Error()), maxError)
		}
		for _, pod := range pods {
			assert.NotEmpty(t, pod.UID)
			assert.NotEmpty(t, pod.Namespace)
			assert.Equal(t, v1.PodPending, pod.Status.Phase)
			// Setting defaults twice changes nothing.
			again := pod.DeepCopy()
			manifest.SetDefaults(again)
			assert.Equal(t, pod.Spec, again.Spec)
		}
		opts.Warn = func(error) {}
		_, lenient := manifest.Load(data, opts)
		if err == nil {
			assert.NoError(t, lenient)
		}
	})
}
