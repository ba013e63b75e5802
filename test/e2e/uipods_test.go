package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// scriptedAgent answers on the socket of an agent with pods that the test sets.
type scriptedAgent struct {
	root   string
	server *httptest.Server
	began  time.Time

	mu     sync.Mutex
	pods   []v1.Pod
	events map[types.UID][]runtime.Event
	// answers are those of other paths, or in the place of the usual ones.
	answers map[string]any
}

// newScriptedAgent returns an agent that has a directory, and does not answer yet.
func newScriptedAgent(t *testing.T, pods []v1.Pod) *scriptedAgent {
	t.Helper()
	root, err := os.MkdirTemp("", "kk") // short, for the socket in it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return &scriptedAgent{root: root, began: time.Now(), pods: pods, events: map[types.UID][]runtime.Event{}}
}

// start makes it answer until stop or the end of the test.
func (a *scriptedAgent) start(t *testing.T) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(a.root, "agent.sock"))
	require.NoError(t, err)
	a.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: a.handler()}}
	a.server.Start()
	t.Cleanup(a.server.Close)
}

func (a *scriptedAgent) stop() {
	a.server.CloseClientConnections() // of those that follow
	a.server.Close()
}

func (a *scriptedAgent) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, value func(*http.Request) any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, req *http.Request) {
			a.mu.Lock()
			defer a.mu.Unlock()
			_ = json.NewEncoder(w).Encode(value(req)) // a client that went away
		})
	}
	none := func(*http.Request) any { return []string{} }
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	answer("/pods", func(*http.Request) any { return v1.PodList{Items: a.pods} })
	answer("/gone", none)
	answer("/problems", none)
	answer("/events/{$}", func(req *http.Request) any {
		events := []runtime.Event{}
		for uid, of := range a.events {
			for _, e := range of {
				if e.Pod.UID = uid; req.URL.Query()["uid"] == nil || slices.Contains(req.URL.Query()["uid"], string(uid)) {
					events = append(events, e)
				}
			}
		}
		return events
	})
	answer("/events/{uid}", func(req *http.Request) any {
		if events := a.events[types.UID(req.PathValue("uid"))]; events != nil {
			return events
		}
		return []runtime.Event{}
	})
	answer("/stats/summary", func(*http.Request) any { return a.summary() })
	mux.HandleFunc("GET /history/{uid}", func(w http.ResponseWriter, req *http.Request) {
		_ = json.NewEncoder(w).Encode(history.Entry{Record: runtime.Record{Stage: runtime.StageDecided,
			Kind: runtime.KindProbe, Container: "main", Reason: "Readiness", Error: "statuscode: 503"}, Seq: 1, Count: 1,
			First: a.began, Last: a.began})
		if req.URL.Query().Get("follow") == "true" {
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}
	})
	mux.HandleFunc("GET /containerLogs/{path...}", func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("previous") == "true" {
			_, _ = io.WriteString(w, "panic: the last words\n")
			return
		}
		_, _ = io.WriteString(w, "listening on :8080\n")
		for i := range 100000 {
			_, _ = fmt.Fprintf(w, "GET /orders/%d 200\n", i)
			if i < 300 {
				continue
			}
			_ = http.NewResponseController(w).Flush()
			if req.URL.Query().Get("follow") != "true" {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !a.answer(w, req) {
			mux.ServeHTTP(w, req)
		}
	})
}

func (a *scriptedAgent) summary() any {
	now, pods := time.Now(), []any{}
	for i := range a.pods {
		use := uint64(1+i*37%100) * 1e6
		pods = append(pods, map[string]any{
			"podRef": map[string]any{"uid": a.pods[i].UID},
			"cpu":    map[string]any{"time": now.Format(time.RFC3339), "usageNanoCores": use + uint64(now.Unix())%7*1e6},
			"memory": map[string]any{"time": now.Format(time.RFC3339), "workingSetBytes": use * 3},
			"containers": []any{map[string]any{"name": "main", "memory": map[string]any{
				"time": now.Format(time.RFC3339), "workingSetBytes": use * 2}}},
		})
	}
	return map[string]any{"pods": pods}
}

// change changes a pod.
func (a *scriptedAgent) change(i int, change func(*v1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.pods[i])
}

// ready makes a pod run, ready or not.
func ready(is bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Phase = v1.PodRunning
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Ready: is, State: v1.ContainerState{
			Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}}}}
	}
}

// crashing makes a pod wait for the restart of a container that has failed.
func crashing(p *v1.Pod) {
	ready(false)(p)
	p.Status.ContainerStatuses[0].RestartCount = 7
	p.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=main"}}
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 3,
		Message: "fatal: the database refused the password", FinishedAt: metav1.NewTime(time.Now().Add(-time.Minute))}
}

// manyPods returns n pods in ten namespaces that are ready, but for some.
func manyPods(n int) []v1.Pod {
	pods := make([]v1.Pod, n)
	for i := range pods {
		p := &pods[i]
		p.UID, p.Namespace = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("team-%d", i%10)
		p.Name = fmt.Sprintf("service-%03d-edge7", i)
		p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", i%7), "tier": []string{"front", "back"}[i%2]}
		p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Duration(i) * time.Hour))
		p.Spec.NodeName = "edge7"
		p.Spec.Containers = []v1.Container{{Name: "main", Image: "registry.example.com/shop/service:1.4.2"}}
		switch {
		case i%250 == 77:
			crashing(p)
		default:
			ready(true)(p)
		}
	}
	return pods
}

// rowsNow are the names in the list, in its order.
const rowsNow = "[...document.querySelectorAll('#pods a')].map(a => a.innerText).join()"

// startScripted starts the page of an agent that answers with the pods.
func startScripted(t *testing.T, pods []v1.Pod) (*scriptedAgent, *browser, string) {
	t.Helper()
	a := newScriptedAgent(t, pods)
	a.start(t)
	address := startUI(t, a.root)
	return a, openBrowser(t, address), address
}

// The list of many pods has those with problems first, is filtered and sorted as its address says, and changes only
// the row of the pod that has changed.
func TestUIManyPods(t *testing.T) {
	t.Parallel()
	const n = 1000
	a, b, _ := startScripted(t, manyPods(n))
	a.mu.Lock()
	a.events["uid-500"] = []runtime.Event{{Type: v1.EventTypeWarning, Reason: "Unhealthy", Count: 1,
		Message: "Readiness probe failed: HTTP probe failed with statuscode: 503"}}
	a.mu.Unlock()
	b.await(t, "all pods", fmt.Sprintf("document.querySelectorAll('#pods tr').length === %d", n))
	t.Logf("first contentful paint after %.0f ms, all rows after %.0f ms",
		eval[float64](t, b, "performance.getEntriesByName('first-contentful-paint')[0].startTime"),
		eval[float64](t, b, "performance.now()"))
	b.await(t, "what they use", "[...document.querySelectorAll('#pods tr')].every(r => /MiB/.test(r.innerText))")
	b.await(t, "problems first",
		rowsNow+".startsWith('service-077-edge7,service-327-edge7,service-577-edge7,service-827-edge7,service-000-edge7')")
	b.picture(t, "try-many", 1280, 900, false)
	b.picture(t, "try-many-dark", 1280, 900, true)
	b.picture(t, "try-many-390", 390, 844, false)
	b.picture(t, "try-many-390-dark", 390, 844, true)
	assert.LessOrEqual(t, eval[int](t, b, "document.documentElement.scrollWidth"), eval[int](t, b, "innerWidth"))

	// One pod changes, and with it one row.
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(1280, 900)))
	eval[chromedp.Void](t, b, `window.moved = 0; window.watched = new MutationObserver(all => {
		for (const m of all) window.moved += m.addedNodes.length;
	}); watched.observe(document.querySelector('#pods'), { childList: true })`)
	a.change(500, ready(false))
	b.await(t, "the pod among the problems, with the answer of its probe", "document.querySelector('#pods').children[4]"+
		".innerText.includes('Readiness probe failed: HTTP probe failed with statuscode: 503')")
	assert.Equal(t, 1, eval[int](t, b, "moved"), "rows that moved")
	a.change(500, ready(true))
	b.await(t, "the pod among the others", "!document.querySelector('#pods').children[4].innerText.includes('service-500')")
	assert.Equal(t, 2, eval[int](t, b, "moved"), "rows that moved")
	t.Logf("reading, drawing and layout of a list with one change take %.0f ms, of that drawing and layout %.0f ms; "+
		"heap %.1f MB", resolve[float64](t, b, `(async () => {
		window.list = await import('./list.js');
		const began = performance.now();
		await list.readList(new AbortController().signal);
		document.body.offsetHeight;
		return performance.now() - began;
	})()`), resolve[float64](t, b, `(async () => {
		const fetched = window.fetch, answer = await (await fetch('api/pods', { headers: {
			Authorization: 'Bearer ' + sessionStorage.getItem('token') } })).json();
		Object.assign(answer.pods[600], { tone: 'bad', status: 'Error', why: 'why' });
		window.fetch = async () => ({ ok: true, headers: new Headers(), json: async () => answer });
		const began = performance.now();
		const done = list.readList(new AbortController().signal);
		window.fetch = fetched;
		await done;
		document.body.offsetHeight;
		return performance.now() - began;
	})()`), eval[float64](t, b, "performance.memory.usedJSHeapSize / 1e6"))

	// The keyboard: / begins the filter, the arrows go through the rows, and Escape ends it.
	press := func(keys string) {
		t.Helper()
		require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
	}
	eval[chromedp.Void](t, b, "document.activeElement.dispatchEvent("+ // a key of chromedp is typed although it is handled
		"new KeyboardEvent('keydown', { key: '/', bubbles: true, cancelable: true }))")
	press("team-3 083")
	b.await(t, "what matches", rowsNow+" === 'service-083-edge7'")
	b.await(t, "the number", "document.querySelector('#shown').innerText === '1 of 1000 pods'")
	assert.Equal(t, "#/?text=team-3+083", eval[string](t, b, "location.hash"))
	press(kb.ArrowDown)
	press("\r")
	b.await(t, "the page of the pod", "document.querySelector('#name').innerText === 'service-083-edge7'")
	press("\x1b")
	b.await(t, "the list with its filter", rowsNow+" === 'service-083-edge7' && "+
		"location.hash === '#/?text=team-3+083' && document.querySelector('#text').value === 'team-3 083'")

	// An address with a filter can be sent.
	for hash, want := range map[string]string{
		"#/?state=bad&namespace=team-7":                   "service-077-edge7,service-327-edge7,service-577-edge7,service-827-edge7",
		"#/?label=app%3Dapp-3&text=service-01&sort=-name": "service-017-edge7,service-010-edge7",
		"#/?text=no+such+pod":                             "",
		"#/?sort=restarts&text=7-edge7&state=bad":         "service-077-edge7,service-327-edge7,service-577-edge7,service-827-edge7",
	} {
		eval[chromedp.Void](t, b, fmt.Sprintf("location.hash = %q", hash))
		b.await(t, hash, fmt.Sprintf("%s === %q", rowsNow, want))
	}
	eval[chromedp.Void](t, b, "location.hash = '#/'")
	eval[chromedp.Void](t, b, "document.querySelector('[data-sort=age]').click()")
	b.await(t, "the youngest first", rowsNow+".startsWith('service-000-edge7,service-001-edge7')")
	assert.Equal(t, "#/?sort=age", eval[string](t, b, "location.hash"))
	assert.Equal(t, "ascending", eval[string](t, b,
		"document.querySelector('[data-sort=age]').parentElement.getAttribute('aria-sort')"))

	// On a phone each pod has one line, and nothing is wider than the screen.
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(390, 844)))
	eval[chromedp.Void](t, b, "location.hash = '#/?sort=problems'")
	b.await(t, "problems first", rowsNow+".startsWith('service-077')")
	a.change(500, ready(false))
	b.await(t, "the reason beside the state", "document.querySelector('#pods').children[4].innerText"+
		".includes('not ready: main: Readiness')")
	b.picture(t, "try-many-390-unready", 390, 844, false)
	assert.Less(t, eval[float64](t, b,
		"Math.max(...[...document.querySelectorAll('#pods tr')].map(r => r.getBoundingClientRect().height))"), 48.0)
	assert.LessOrEqual(t, eval[int](t, b, "document.documentElement.scrollWidth"), 390)
	b.noProblem(t)
}

// tab opens another tab of the browser.
func (b *browser) tab(t *testing.T, address string) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	return &browser{ctx: ctx, problems: b.problems}
}

// When the agent has ended or hangs, the page says so in words and shows when it was last true; it goes on by itself.
func TestUIAgentEnds(t *testing.T) {
	t.Parallel()
	a, b, address := startScripted(t, manyPods(30))
	origin, _, _ := strings.Cut(address, "#")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(390, 844)))
	pod := b.tab(t, origin+"#/pods/uid-5") // as a link that is opened in a new tab
	live := "document.querySelector('#link').innerText === 'Live' && !('stale' in document.body.dataset)"
	stale := func(why string) string {
		return fmt.Sprintf(`'stale' in document.body.dataset && /^As of \d\d:\d\d:\d\d$/.test(document.querySelector('#link').innerText) && `+
			`document.querySelector('#outage').innerText.startsWith(%q)`, why)
	}
	pages := map[string]*browser{"the list": b, "a pod": pod}
	for name, page := range pages {
		page.await(t, name, live)
	}
	pod.await(t, "its log", "document.querySelector('#log').innerText.includes('listening on')")

	a.stop()
	for name, page := range pages {
		page.await(t, name+" without the agent", stale("The agent does not answer"))
		assert.LessOrEqual(t, eval[int](t, page, "document.documentElement.scrollWidth"),
			eval[int](t, page, "innerWidth"), name)
	}
	assert.Equal(t, "rgb(92, 102, 117)", eval[string](t, b, "getComputedStyle(document.querySelector('#pods a')).color"))
	assert.Equal(t, 30, eval[int](t, b, "document.querySelectorAll('#pods tr').length"))
	assert.Contains(t, eval[string](t, pod, "document.querySelector('#log').innerText"), "listening on", "it stays")
	b.accessible(t, "the list without the agent")
	pod.accessible(t, "a pod without the agent")
	a.start(t)
	for name, page := range pages {
		page.await(t, name+" with the agent", live)
	}

	a.mu.Lock() // it accepts connections and does not answer
	for name, page := range pages {
		page.await(t, name+" of an agent that hangs", stale("The agent has not answered for ten seconds."))
	}
	a.mu.Unlock()
	for name, page := range pages {
		page.await(t, name+" of an agent that goes on", live)
	}
	b.noProblem(t)

	// A browser without a tab of the page asks for the token, and then shows what was asked for.
	other := openBrowser(t, origin+"#/pods/uid-5")
	other.await(t, "the question", "document.activeElement === document.querySelector('#token')")
	other.accessible(t, "the question for the token")
	require.NoError(t, chromedp.Do(other.ctx, chromedp.KeyEvent(address+"\r")))
	other.await(t, "the pod", "document.querySelector('#name').innerText === 'service-005-edge7'")
	assert.Equal(t, origin+"#/pods/uid-5", eval[string](t, other, "location.href"))
	other.noProblem(t)
}

// The log of a pod is followed, and holds still while a person reads it; it is searched, saved, and there is that of the
// previous instance.
func TestUILogs(t *testing.T) {
	t.Parallel()
	_, b, address := startScripted(t, manyPods(3))
	origin, _, _ := strings.Cut(address, "#")
	b.await(t, "the list", "document.querySelectorAll('#pods tr').length === 3")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate(origin+"#/pods/uid-1")))
	const text = "document.querySelector('#log').innerText"
	const position = "document.querySelector('#log').scrollTop"
	b.await(t, "what is written", text+".includes('/orders/310 200')")
	assert.Greater(t, eval[float64](t, b, position), 1000.0, "its end is shown")

	eval[chromedp.Void](t, b, position+" = 500")
	b.await(t, "that it is not followed", "!document.querySelector('#follow').checked")
	last := eval[int](t, b, "Number("+text+".match(/orders.(\\d+) 200\\s*$/)[1])")
	b.await(t, "what is written later", fmt.Sprintf(text+".includes('/orders/%d 200')", last+10))
	assert.Equal(t, 500.0, eval[float64](t, b, position), "it holds still")
	eval[chromedp.Void](t, b, position+" = 1e6")
	b.await(t, "that it is followed", "document.querySelector('#follow').checked")

	eval[chromedp.Void](t, b, "document.querySelector('#find').focus()")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("ORDERS/42 ")))
	b.await(t, "what is found", "document.querySelector('#found').innerText === '1 found'")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\r")))
	b.await(t, "where it is", "document.querySelector('#found').innerText === '1 of 1 found' && "+position+" < 1500")
	assert.Equal(t, 1, eval[int](t, b, "CSS.highlights.get('current').size"))
	b.picture(t, "try-logs", 1280, 1400, false)
	b.picture(t, "try-logs-390-dark", 390, 1500, true)
	assert.LessOrEqual(t, eval[int](t, b, "document.documentElement.scrollWidth"), eval[int](t, b, "innerWidth"))

	eval[chromedp.Void](t, b, "document.querySelector('#wrap').click()")
	assert.Equal(t, "pre", eval[string](t, b, "getComputedStyle(document.querySelector('#log')).whiteSpace"))
	eval[chromedp.Void](t, b, "document.querySelector('#previous').click()")
	b.await(t, "the previous instance", text+".trim() === 'panic: the last words'")
	eval[chromedp.Void](t, b, "document.querySelector('#previous').click()")
	eval[chromedp.Void](t, b, `(make => URL.createObjectURL = blob => { window.saved = blob; return make(blob); })(`+
		`URL.createObjectURL.bind(URL)); document.querySelector('#download').click()`)
	b.await(t, "the file", "'saved' in window")
	saved := resolve[string](t, b, "saved.text()")
	assert.True(t, strings.HasPrefix(saved, "listening on :8080\nGET /orders/0 200\n"), saved)
	assert.True(t, strings.HasSuffix(saved, "\nGET /orders/300 200\n"), saved)
	b.noProblem(t)
}

// The page of a pod has its events, and of each container what it may use and uses, its probes with their last answer,
// ports, mounts and environment without secrets; and the YAML.
func TestUIPodDetails(t *testing.T) {
	t.Parallel()
	pods := manyPods(2)
	c := &pods[1].Spec.Containers[0]
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("256Mi")}
	c.ReadinessProbe = &v1.Probe{PeriodSeconds: 10, ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}}
	c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/var/lib/service"}}
	c.Env = []v1.EnvVar{{Name: "MODE", Value: hostile}, {Name: "DB_PASSWORD", Value: "geheim"}}
	pods[1].Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: "/srv/service"}}}}
	ready(false)(&pods[1])
	a, b, address := startScripted(t, pods)
	a.mu.Lock()
	a.events["uid-1"] = []runtime.Event{{Type: v1.EventTypeNormal, Reason: "Started", Message: "Started container main",
		FieldPath: "spec.containers{main}", Count: 1, First: a.began, Last: a.began}, {Type: v1.EventTypeWarning,
		Reason: "Unhealthy", Message: "Readiness probe failed: 503", Count: 12, First: a.began, Last: a.began}}
	a.mu.Unlock()
	origin, _, _ := strings.Cut(address, "#")
	b.await(t, "the list", "document.querySelectorAll('#pods tr').length === 2")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate(origin+"#/pods/uid-1")))
	b.await(t, "the events, the newest first", "/Unhealthy/.test(document.querySelector('#events li')?.innerText) && "+
		"document.querySelector('#events li').innerText.includes('12 times since')")
	b.await(t, "what the container uses", "/memory \\d+ MiB of 256 MiB/.test(document.querySelector('#containers').innerText)")
	b.await(t, "the volume", "document.querySelector('#volumes').innerText.includes('hostPath /srv/service')")
	eval[chromedp.Void](t, b, "document.querySelector('#containers summary').click()")
	for _, text := range []string{"requested 100m", "limit 256Mi", "GET :8080/ready, every 10 s",
		"fails: statuscode: 503 (since ", "8080/TCP", "from volume data", "(hidden)", hostile} {
		b.await(t, text, fmt.Sprintf("document.querySelector('#containers').innerText.includes(%q)", text))
	}
	at := eval[string](t, b, "document.querySelector('#containers .head').innerText")
	eval[chromedp.Void](t, b, "document.querySelector('#yaml summary').click()")
	b.await(t, "the YAML", "document.querySelector('#yaml pre').innerText.includes('kind: Pod')")
	assert.NotContains(t, eval[string](t, b, "document.documentElement.innerHTML"), "geheim")
	a.change(1, ready(true))
	b.await(t, "a change", fmt.Sprintf("document.querySelector('#containers .head').innerText !== %q", at))
	assert.True(t, eval[bool](t, b, "document.querySelector('#containers details').open"), "it stays open")
	b.accessible(t, "a pod")
	b.picture(t, "try-details", 1280, 1500, false)
	b.picture(t, "try-details-dark-390", 390, 1700, true)
	assert.LessOrEqual(t, eval[int](t, b, "document.documentElement.scrollWidth"), eval[int](t, b, "innerWidth"))
	b.noProblem(t)
}
