package repository_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// TestTutorial does what docs/embed/tutorial.md says, block by block, as a user in a fresh home. Go code and manifests
// are written to the file that their first line names. Commands are executed; a program of "go run" goes on until the
// next one. What is in a block of text must then appear in the output.
func TestTutorial(t *testing.T) {
	p := newTypist(t, t.TempDir())
	for _, block := range blocks(t, "docs/embed/tutorial.md", "") {
		switch kind, text := block[1], block[2]; kind {
		case "go", "yaml":
			p.write(text)
		case "sh":
			p.executeAll(text)
		case "text":
			for line := range strings.Lines(text) {
				p.wait(strings.TrimSpace(line))
			}
			p.output.Take()
		default:
			t.Fatalf("a block of %s", kind)
		}
	}
}

// TestTryIt does what the README says first, as an ordinary user in a fresh home.
func TestTryIt(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("with root, the agent has the directory of the machine")
	}
	tree, err := os.Getwd()
	require.NoError(t, err)
	p := newTypist(t, tree)
	list := blocks(t, "README.md", "## Try it")
	require.Len(t, list, 3)
	t.Cleanup(func() {
		if t.Failed() { // otherwise the last of its commands is stop
			stop := exec.Command(p.bin+"/minikubelet", "stop")
			stop.Env = p.env
			out, err := stop.CombinedOutput()
			t.Logf("stop: %s%v", out, err)
		}
	})
	p.execute(strings.TrimSpace(list[0][2]) + " --healthz-port 0") // other tests have agents at the same time
	commands := strings.Split(strings.TrimSpace(list[1][2]), "\n")
	p.execute(commands[0])
	p.eventually(`test "$(bin/minikubelet pods 2>/dev/null | grep -c Running)" = 2`)
	p.compare(list[2][2])
	for _, line := range commands[1:] {
		p.execute(line)
	}
	p.wait("hello from hello-")
	require.NoError(t, p.agent.Wait(), "the agent ends after stop")
	p.agent = nil
}

// compare executes the commands of a block of output, which follow "$ ", and compares each line below them with what is
// printed. Numbers, times, the order of lines and what a state is seen by may differ.
func (p *typist) compare(block string) {
	host, err := os.Hostname()
	require.NoError(p, err)
	same := func(line string) string {
		line = strings.ReplaceAll(line, "-"+strings.ToLower(host), "-vm")
		line = regexp.MustCompile(`\d[\d.:a-zµ]*`).ReplaceAllString(line, "N")
		line = regexp.MustCompile("seen by (relist|inspection)").ReplaceAllString(line, "seen by event")
		return strings.Join(strings.Fields(line), " ")
	}
	command := ""
	for line := range strings.Lines(block) {
		if c, ok := strings.CutPrefix(line, "$ "); ok {
			command = strings.ReplaceAll(strings.TrimSpace(c), "bin/", p.bin+"/")
			continue
		}
		var out []byte
		printed := func() bool {
			c := exec.CommandContext(p.Context(), "sh", "-c", command)
			c.Dir, c.Env = p.dir, p.env
			out, _ = c.Output()
			return slices.ContainsFunc(strings.Split(string(out), "\n"), func(l string) bool { return same(l) == same(line) })
		}
		require.Eventuallyf(p, printed, time.Minute, 100*time.Millisecond, "%s does not print %q", command, line)
	}
}

// TestFromAClone does what docs/embed/compose.md says about a module that uses a clone, with the program of that page,
// outside of the repository.
func TestFromAClone(t *testing.T) {
	p := newTypist(t, t.TempDir())
	p.write("// main.go\n" + blocks(t, "docs/embed/compose.md", "")[0][2])
	p.run("go mod init example.com/agent")
	commands := blocks(t, "docs/embed/compose.md", "## From a clone")[0][2]
	p.executeAll(strings.Replace(commands, "go build .", "go build -ldflags=-w -o "+p.bin+"/agent .", 1))
	assert.FileExists(t, filepath.Join(p.bin, "agent"))
}

// blocks returns the fenced blocks of a document, each as [all, language, text]: those between the heading and the next
// one, if there is a heading.
func blocks(t *testing.T, path, heading string) [][]string {
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(page)
	if heading != "" {
		_, after, found := strings.Cut(text, "\n"+heading+"\n")
		require.True(t, found, heading)
		text, _, _ = strings.Cut(after, "\n## ")
	}
	return regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(text, -1)
}

// typist types into a shell.
type typist struct {
	*testing.T
	dir, bin string
	env      []string
	port     string
	output   testenv.Output
	agent    *exec.Cmd
}

func newTypist(t *testing.T, dir string) *typist {
	port := fmt.Sprint(10_000 + rand.IntN(20_000)) // the kernel gives none of these to others
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	home := t.TempDir()
	p := &typist{T: t, dir: dir, bin: t.TempDir(), port: port}
	p.env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME=", "GOPROXY=off", "GOWORK=off", "GOSUMDB=off")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		require.NoError(t, err)
		p.env = append(p.env, name+"="+strings.TrimSpace(string(value)))
	}
	t.Cleanup(p.interrupt)
	return p
}

// write writes a file, or a part of one if the first line has a text before which it belongs.
func (p *typist) write(block string) {
	block = strings.ReplaceAll(block, "8095", p.port)
	first, rest, _ := strings.Cut(block, "\n")
	name, before, isPart := strings.Cut(strings.TrimLeft(first, "/# "), ", before ")
	path := filepath.Join(p.dir, name)
	if isPart {
		old, err := os.ReadFile(path)
		require.NoError(p, err)
		before = strings.Trim(before, `"`)
		require.Equal(p, 1, strings.Count(string(old), before), first)
		block = strings.Replace(string(old), before, rest+before, 1)
	}
	require.NoError(p, os.WriteFile(path, []byte(block), 0o600))
}

func (p *typist) executeAll(text string) {
	for line := range strings.Lines(text) {
		p.execute(strings.TrimSpace(line))
	}
}

func (p *typist) execute(line string) {
	line = strings.ReplaceAll(strings.ReplaceAll(line, "8095", p.port), "bin/", p.bin+"/")
	program, isRun := strings.CutPrefix(line, "go run ")
	switch {
	case isRun:
		p.interrupt()
		p.start(program)
	case strings.HasPrefix(line, "go get "):
		p.useThisModule()
	case strings.HasPrefix(line, "mkdir "):
		p.run(line)
		p.dir = filepath.Join(p.dir, "fieldagent")
	case strings.HasPrefix(line, "curl "):
		p.eventually(line) // the agent is about to listen
	case strings.HasPrefix(line, "cat "), strings.Contains(line, "minikubelet logs "):
		command, _, _ := strings.Cut(line, "#")
		p.eventually(command + " | grep .") // the pod is about to print
	default:
		p.run(line)
	}
}

// start is "go run", whose program receives the signals.
func (p *typist) start(program string) {
	path := filepath.Join(p.bin, "program")
	build, args, _ := strings.Cut(program, " --")
	p.run("go build -ldflags=-w -o " + path + " " + build) // debug information takes time
	var arguments []string
	if args != "" {
		arguments = strings.Fields("--" + args)
	}
	p.agent = exec.Command(path, arguments...) // ends by a signal, in interrupt
	p.agent.Dir, p.agent.Env, p.agent.Stdout, p.agent.Stderr = p.dir, p.env, &p.output, &p.output
	require.NoError(p, p.agent.Start())
}

// useThisModule is "go get" of this tree, which a replacement stands for. The module requires what this one requires,
// so that it needs nothing that was not fetched for the tests. (A workspace would: it has no pruned graph of modules.)
func (p *typist) useThisModule() {
	tree, err := os.Getwd()
	require.NoError(p, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(tree, name))
		require.NoError(p, err)
		require.NoError(p, os.WriteFile(filepath.Join(p.dir, name), data, 0o600))
	}
	p.run("go mod edit -module example.com/fieldagent -require github.com/kubeletkit/kubeletkit@v0.0.0 -replace " +
		"github.com/kubeletkit/kubeletkit=" + tree)
}

func (p *typist) run(line string) {
	require.NoErrorf(p, p.try(line), "%s\n%s", line, &p.output)
}

func (p *typist) try(line string) error {
	c := exec.CommandContext(p.Context(), "sh", "-c", line)
	c.Dir, c.Env, c.Stdout, c.Stderr = p.dir, p.env, &p.output, &p.output
	return c.Run()
}

func (p *typist) eventually(line string) {
	line = strings.ReplaceAll(line, "bin/", p.bin+"/")
	require.Eventuallyf(p, func() bool { return p.try(line) == nil }, time.Minute, 100*time.Millisecond,
		"%s\n%s", line, &p.output)
}

func (p *typist) interrupt() {
	if p.agent == nil {
		return
	}
	_ = p.agent.Process.Signal(syscall.SIGINT)
	if err := p.agent.Wait(); err != nil {
		p.Errorf("the agent: %v\n%s", err, &p.output)
	}
	p.agent = nil
}

// wait waits until the text was printed.
func (p *typist) wait(text string) {
	require.Eventuallyf(p, func() bool { return strings.Contains(p.output.String(), text) }, time.Minute,
		20*time.Millisecond, "%q is not in:\n%s", text, &p.output)
}
