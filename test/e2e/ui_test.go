package e2e

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// pictures makes TestUI write the pictures of docs/operate/ui.md.
var pictures = flag.String("pictures", "", "directory for the pictures of the page of minikubelet ui")

// hostile is what a page that inserts text as HTML would execute.
const hostile = `<img src=x onerror=window.hostile=1>`

// startUI runs minikubelet ui with the flags and returns the address that it prints.
func startUI(t *testing.T, rootDir string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(MinikubeletBinary(t), append([]string{"ui", "--root-dir", rootDir}, flags...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		err := cmd.Wait()
		var code *exec.ExitError
		assert.ErrorAs(t, err, &code)
		assert.Equal(t, 130, cmd.ProcessState.ExitCode(), "the code of an interrupt")
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// browser is a page in headless Chromium.
type browser struct {
	ctx context.Context
	// problems are the errors of scripts, and requests to others.
	problems chan string
}

// openBrowser starts Chromium without its sandbox, which does not work as root.
func openBrowser(t *testing.T, address string) *browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		Skip(t, "needs Chromium: apt install chromium-headless-shell")
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1100, 800),
		chromedp.WSURLReadTimeout(time.Minute), chromedp.Flag("font-render-hinting", "none"))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx, problems: make(chan string, 100)}
	origin := address[:strings.Index(address, "#")]
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			text = e.ExceptionDetails.Text + fmt.Sprintf(" at line %d", e.ExceptionDetails.LineNumber)
			if e.ExceptionDetails.Exception != nil {
				text += ": " + e.ExceptionDetails.Exception.Description
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, origin) {
				text = "request to " + e.Request.URL
			}
		}
		if text != "" {
			select {
			case b.problems <- text:
			default: // enough of them
			}
		}
	}))
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	return b
}

// openPod opens the page of the only pod of a node, which has containers.
func openPod(t *testing.T, address string, uid types.UID, containers int) *browser {
	t.Helper()
	b := openBrowser(t, address)
	b.await(t, "the list", "document.querySelectorAll('#pods tr').length === 1")
	eval[chromedp.Void](t, b, fmt.Sprintf("location.hash = '#/pods/%s'", uid))
	b.await(t, "the pod", fmt.Sprintf("document.querySelectorAll('#containers li').length === %d", containers))
	return b
}

// press presses keys. A key has its text, and no event of its own for that, which would come even if the page has taken
// the key.
func (b *browser) press(t *testing.T, keys string, modifiers ...chromedp.Modifier) {
	t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		if len(events) == 3 {
			events[0].Text, events[0].UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		for _, e := range []*input.DispatchKeyEventParams{events[0], events[len(events)-1]} {
			chromedp.KeyModifiers(modifiers...)(e)
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, *e)
			require.NoError(t, err)
		}
	}
}

// eval returns the value of a script.
func eval[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	require.NoError(t, err, script)
	return value
}

// resolve returns the value of the promise of a script.
func resolve[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(t, err, script)
	return value
}

// noProblem fails the test if a script had an error, or the page sent a request elsewhere.
func (b *browser) noProblem(t *testing.T) {
	t.Helper()
	select {
	case problem := <-b.problems:
		t.Error(problem)
	default:
	}
}

// await waits until a script is true.
func (b *browser) await(t *testing.T, what, script string) {
	t.Helper()
	Eventually(t, within, what, func() error {
		if !eval[bool](t, b, script) {
			return errors.New("the page shows: " + eval[string](t, b, "document.body.innerText"))
		}
		return nil
	})
}

// picture writes a picture of the page, of the given width and at most the given height.
func (b *browser) picture(t *testing.T, name string, width, height int64, dark bool) {
	t.Helper()
	if *pictures == "" {
		return
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height), chromedp.Sleep(time.Second)))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600))
}

// The page of minikubelet ui in a browser shows pods as they are, why one does not run, what happened
// to it, what it writes and uses; and nothing of it acts on the page.
func TestUI(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t,
		AgentOptions{Config: map[string]any{"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "10s"}}})
	dir := t.TempDir()
	// In a manifest $$$$ stands for a shell's $$, and $$ for $.
	web := MakePod("web", Main(
		Sh("server", `echo '`+hostile+
			`'; i=0; while true; do i=$$((i+1)); echo "$$(date +%T) GET /orders/$$((1040 + i)) 200"; k=0; while [ $$k -lt $$(( i % 9 * 9000 )) ]; do k=$$((k+1)); done; sleep 0.7; if [ -e `+dir+`/go ]; then echo the last word; rm `+dir+`/go; fi; done`),
		Sh("exporter", "echo serving metrics; exec sleep 2147483647")))
	loop := Sh("importer", "echo connecting to the database; sleep 4; echo 'fatal: the database refused the "+
		"password'; exit 3")
	loop.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	importer := MakePod("importer", Main(loop))
	broken := Sh("thumbs", "exit 0")
	broken.Image = hostile
	thumbs := MakePod("thumbs", Main(broken))
	migrate := MakePod("migrate", Policy(v1.RestartPolicyNever), Main(Sh("migrate", "echo done")))
	for pod, image := range map[*v1.Pod]string{web: "web:1.4.2", importer: "importer:0.9", migrate: "migrate:7"} {
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Image = "registry.example.com/shop/" + image
		}
	}
	a.Put(t, web, importer, thumbs, migrate)
	a.PutFile(t, "cache.yaml",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: cache}\nspec: {containers: [{name: cache}]}\n")
	running := a.Await(t, web, within, Running, Ready(true))
	a.Await(t, importer, within, Waiting("importer", "CrashLoopBackOff"))
	a.Await(t, thumbs, within, Waiting("thumbs", "InvalidImageName"))

	address := startUI(t, a.Root)
	origin, token, _ := strings.Cut(address, "/#")
	resp, err := http.Get(origin + "/api/pods")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "a request without the token")

	b := openBrowser(t, address)
	row := func(pod *v1.Pod) string {
		return fmt.Sprintf("[...document.querySelectorAll('#pods tr')].find(r => r.innerText.includes(%q))",
			FullName(pod)[:len(pod.Name)])
	}
	b.await(t, "four pods", "document.querySelectorAll('#pods tr').length === 4")
	assert.False(t, eval[bool](t, b, fmt.Sprintf("location.href.includes(%q)", token)),
		"the token is not in the address any more")
	b.await(t, "a pod that runs", row(web)+".innerText.includes('Running') && "+row(web)+".innerText.includes('2/2')")
	b.await(t, "a pod that crashes", row(importer)+
		`.innerText.includes('exit code 3 (fatal: the database refused the password)')`)
	b.await(t, "a broken image", row(thumbs)+
		`.innerText.includes('InvalidImageName: Failed to apply default image tag "`+hostile+`"')`)
	b.await(t, "a pod that has ended", row(migrate)+".innerText.includes('Completed')")
	b.await(t, "a manifest that cannot be used", "document.querySelector('#problems').innerText.includes('cache.yaml')")
	b.await(t, "curves", row(web)+".querySelectorAll('polyline').length === 2")
	if *pictures != "" {
		time.Sleep(50 * time.Second) // for curves that look like some
	}
	b.picture(t, "ui-list", 1140, 720, false)
	b.picture(t, "try-list-dark", 1040, 690, true)
	b.picture(t, "try-list-400", 400, 1000, false)

	open := func(pod *v1.Pod) {
		t.Helper()
		eval[chromedp.Void](t, b, "location.hash = '#/'")
		b.await(t, "the list", "!document.querySelector('#list').hidden")
		eval[chromedp.Void](t, b, row(pod)+".querySelector('a').focus()")
		require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\r"))) // from the keyboard
		b.await(t, "the page of the pod", fmt.Sprintf("document.querySelector('#name').innerText.startsWith(%q)",
			pod.Name))
	}
	open(thumbs)
	b.await(t, "why", "document.querySelector('#why').innerText.includes('Not running: container thumbs waits: "+
		"InvalidImageName')")
	b.await(t, "the name of the image", fmt.Sprintf("document.querySelector('#containers').innerText.includes(%q)",
		hostile))
	b.await(t, "its history", "document.querySelector('#entries').innerText.includes('thumbs')")
	open(importer)
	b.await(t, "the end in the history", "document.querySelector('#entries').innerText.includes('Container importer "+
		"exited with code 3')")
	b.await(t, "the time line", "document.querySelectorAll('#timeline .mark[data-tone=bad]').length > 0 && "+
		"document.querySelectorAll('#timeline .ran').length > 0")
	b.await(t, "the log", "document.querySelector('#log').innerText.includes('fatal: the database')")
	b.picture(t, "ui-pod", 1040, 1042, false)
	b.picture(t, "try-pod-dark", 1040, 1400, true)
	b.picture(t, "try-pod-400", 400, 1800, false)
	eval[chromedp.Void](t, b, "document.querySelector('#log').replaceChildren(); document.querySelector('#previous').click()")
	b.await(t, "the log of the previous instance",
		"document.querySelector('#log').innerText.startsWith('connecting to the database')")
	eval[chromedp.Void](t, b, "document.querySelector('#timestamps').click()")
	b.await(t, "its time stamps", `/^\d{4}-\d\d-\d\dT[\d:.]+Z connecting/.test(document.querySelector('#log').innerText)`)
	eval[chromedp.Void](t, b, "document.querySelector('#timestamps').click()")
	open(web)
	b.await(t, "the log of the first container", fmt.Sprintf("document.querySelector('#log').innerText.includes(%q)",
		hostile))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	b.await(t, "what is written later", "document.querySelector('#log').innerText.includes('the last word')")
	b.picture(t, "try-web", 1040, 1400, false)
	eval[chromedp.Void](t, b, "(s => { s.value = 'exporter'; s.dispatchEvent(new Event('change')) "+
		"})(document.querySelector('#container'))")
	b.await(t, "the log of the other container",
		"document.querySelector('#log').innerText.trim() === 'serving metrics'")
	assert.Equal(t, string(running.UID), eval[string](t, b, "location.hash.split('/').pop()"))

	eval[chromedp.Void](t, b, "location.hash = '#/node'")
	b.await(t, "the node", "document.querySelector('#nodestatus').innerText === 'Ready' && "+
		"document.querySelector('#nodepage').innerText.includes('evicts pods at less than 1Mi')")
	open(web)

	// It goes on when its pod is gone.
	a.Remove(t, web)
	b.await(t, "the end", "document.querySelector('#status').innerText === 'Gone'")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\x1b")))
	b.await(t, "pods that are gone", "document.querySelector('#gone').innerText.includes('web')")

	assert.False(t, eval[bool](t, b, "'hostile' in window || document.querySelectorAll('img').length > 0"),
		"text of pods is text")
	b.noProblem(t)
	eval[chromedp.Void](t, b, "sessionStorage.clear()")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.Reload()))
	b.await(t, "that the token is missing", "document.body.innerText.includes('This page needs its token')")
}

// Where the operator allows it, a container is restarted from the keyboard after a second question, and the history of
// its pod has who did it.
func TestUIRestart(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	pod := MakePod("web", Grace(1), Main(Sh("server", "exec sleep 2147483647"), Sh("other", "exec sleep 2147483647")))
	a.Put(t, pod)
	uid := a.Await(t, pod, within, Running, Ready(true)).UID
	readOnly := openPod(t, startUI(t, a.Root), uid, 2)
	assert.Zero(t, eval[int](t, readOnly, "[...document.querySelectorAll('button')].filter(b => "+
		"b.innerText === 'Restart').filter(b => b.checkVisibility()).length"), "it is not allowed")

	b := openPod(t, startUI(t, a.Root, "--allow-restart"), uid, 2)
	const button = "document.querySelector('[data-restart=server]')"
	b.await(t, "the button", button+"?.checkVisibility() === true")
	eval[chromedp.Void](t, b, button+".focus()")
	b.press(t, "\r")
	b.await(t, "the question", "document.querySelector('#confirm').open && document.activeElement.innerText === 'Cancel'")
	assert.Contains(t, eval[string](t, b, "document.querySelector('#confirm').innerText"),
		"Restart container server of pod web-")
	b.accessible(t, "the question")
	b.press(t, "\x1b")
	b.await(t, "the page without the question", "!document.querySelector('#confirm').open")
	assert.True(t, eval[bool](t, b, "document.activeElement === "+button+" && !document.querySelector('#pod').hidden"))
	b.press(t, "\r")
	b.press(t, "\t")
	b.press(t, "\r")
	b.await(t, "the end", "document.querySelector('#action').innerText.startsWith('Stopped server;')")
	b.await(t, "the restart", "document.querySelector('#containers li').innerText.includes('1 restart')")
	b.await(t, "who", "document.querySelector('#entries').innerText.includes('a client has requested a restart by the page, user root (UID 0)')")
	assert.True(t, eval[bool](t, b, "document.activeElement === "+button), "the focus stays")
	restarted := a.Await(t, pod, within, Running, Ready(true))
	assert.EqualValues(t, 1, restarted.Status.ContainerStatuses[0].RestartCount+
		restarted.Status.ContainerStatuses[1].RestartCount, "one of them")
	b.noProblem(t)
}

// Where the operator allows it, a command is executed in a terminal, from the keyboard, and nothing of that is against
// the policy of the page.
func TestUIExec(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{})
	pod := MakePod("web", Grace(1), Main(Sh("server", "exec sleep 2147483647")))
	a.Put(t, pod)
	uid := a.Await(t, pod, within, Running, Ready(true)).UID
	open := func(flag string) *browser { return openPod(t, startUI(t, a.Root, flag), uid, 1) }
	const button = "document.querySelector('[data-exec=server]')"
	assert.False(t, eval[bool](t, open("--allow-restart"), button+".checkVisibility()"), "it is not allowed")

	b := open("--allow-exec")
	eval[chromedp.Void](t, b, "window.violations = []; document.addEventListener('securitypolicyviolation', "+
		"e => violations.push(`${e.violatedDirective} by ${e.sourceFile}:${e.lineNumber}`))")
	run := func(command string) {
		t.Helper()
		eval[chromedp.Void](t, b, button+".focus()")
		b.press(t, "\r")
		b.await(t, "the question", "document.querySelector('#confirm').open && document.activeElement.id === 'command'")
		assert.Contains(t, eval[string](t, b, "document.querySelector('#confirm').innerText"),
			"Run a command in container server of pod web-")
		if command != "" {
			eval[chromedp.Void](t, b, "document.querySelector('#command').select()")
			b.press(t, command)
		}
		b.press(t, "\r")
	}
	state := func(text string) {
		t.Helper()
		b.await(t, text, fmt.Sprintf("document.querySelector('#sessionstate').innerText.includes(%q)", text))
	}
	screen := func(text string) {
		t.Helper()
		b.await(t, text, fmt.Sprintf("document.querySelector('#terminal .xterm-rows').innerText.includes(%q)", text))
	}
	run("")
	state("Connected")
	screen("#") // the prompt
	b.press(t, "echo $((6*7)) $(stty size)\r")
	b.await(t, "the size", `/42 [1-9]\d+ [1-9]\d+\s/.test(document.querySelector('#terminal .xterm-rows').innerText)`)
	b.press(t, `printf '\033[38;2;250;1;250mcolored\033[0m\n'`+"\r")
	b.await(t, "a color", "[...document.querySelectorAll('#terminal span')].some(s => s.innerText === 'colored' && "+
		"s.style.color.startsWith('rgb('))")
	b.accessible(t, "a terminal")
	if *pictures != "" {
		b.press(t, "clear; ls -F --color=always /etc/apt; free -m\r")
		screen("Swap:")
		b.picture(t, "ui-exec", 1040, 760, false)
	}
	b.press(t, "\x1b")
	assert.False(t, eval[bool](t, b, "document.querySelector('#pod').hidden"), "Escape is for the terminal")
	b.press(t, kb.F6, chromedp.ModifierShift)
	assert.Equal(t, "end", eval[string](t, b, "document.activeElement.id"))
	eval[chromedp.Void](t, b, "document.querySelector('#terminal textarea').focus()")
	b.press(t, "\rexit 3\r")
	state("Ended with exit code 3")
	assert.Equal(t, "Close", eval[string](t, b, "document.activeElement.innerText"))
	b.press(t, "\r")
	b.await(t, "the page without the terminal", "document.querySelector('#session').hidden")
	assert.True(t, eval[bool](t, b, "document.activeElement === "+button))

	run("no-such-program")
	state("no-such-program")
	run("cat")
	state("Connected")
	eval[chromedp.Void](t, b, "document.querySelector('#end').click()")
	b.await(t, "the page without the terminal", "document.querySelector('#session').hidden")
	assert.Empty(t, eval[[]string](t, b, "violations"))
	b.noProblem(t)
}
