// Guest runs tests, or a command, in a Linux of its own: in a machine of QEMU with the kernel of a
// Debian package. It has cgroup v2 with all controllers, PSI, swap, AppArmor, an empty disk and, if it
// is wanted, systemd with logind. It sees the files of this machine, and what it writes is gone with it.
//
//	go run ./guest [flags] [DIRECTORY]...
//	go run ./guest [flags] -- COMMAND [ARGUMENT]...
//
// The first form, in the directory test/e2e, builds and runs the tests of which the names begin with
// TestGuest, of the packages in and below the directories, or in all of the repository. Those with the
// word Systemd in their names run in guests with systemd, the others in guests where nothing else runs:
// those with the word NUMA in one with two memory nodes of two processors, and those with the word SELinux in one with
// SELinux, without a policy, in place of AppArmor. The end-to-end tests have guests of
// their own. Up to three guests run at a time. All tests have to run and to pass: one that skips is a failure.
//
// The second form runs a command in one guest. Its exit status is that of the command. With -image, the
// disk outlives the guest. SIGTERM switches the guest off as a power cut does: what the guest has not
// written to its disk yet is lost.
//
// In the guest there are, beside the variables of Go and of this repository,
//
//	KUBELETKIT_GUEST=1
//	KUBELETKIT_GUEST_SWAP    a device that is ready for swapon; swap is off
//	KUBELETKIT_GUEST_DISK    an empty disk, or that of -image
//	TMPDIR                   a directory in memory. /tmp is that of the machine below an overlay, which an
//	                         overlay cannot be made on
//
// It needs Debian on amd64, root, and the packages qemu-system-x86, kmod, and for systemd also systemd
// and dbus. Its processors are emulated, 10 to 20 times slower than those of the machine; with -kvm
// they are not.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

// The exit statuses that are not those of a command.
const (
	exitTests = 1
	exitUsage = 2
	exitGuest = 125
)

type options struct {
	machine
	systemd bool
	swapMiB int
	silence time.Duration
	match   string
	tests   []string
	command []string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := guest(ctx, parse(os.Args[1:]))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	os.Exit(code)
}

func parse(args []string) options {
	var o options
	flags := flag.NewFlagSet("guest", flag.ExitOnError)
	flags.IntVar(&o.cpus, "cpus", 0, "the number of processors (default 2 for each memory node)")
	flags.IntVar(&o.nodes, "numa", 0, "the number of memory nodes (default 1, of tests that need them 2)")
	flags.IntVar(&o.threads, "threads", 1, "the number of processors of each core")
	flags.IntVar(&o.mem, "memory", 2048, "the memory, in MiB")
	flags.IntVar(&o.swapMiB, "swap", 512, "the size of the device for swap, in MiB")
	flags.IntVar(&o.diskMiB, "disk", 2048, "the size of the disk, in MiB")
	flags.StringVar(&o.image, "image", "", "a file that is the disk, for one command; it is kept, and is made if it "+
		"does not exist")
	flags.BoolVar(&o.kvm, "kvm", false, "do not emulate the processors")
	flags.StringVar(&o.kernel, "append", "", "further arguments of the kernel")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "when a guest is killed")
	flags.DurationVar(&o.silence, "silence", 10*time.Minute, "the time without output after which a command hangs: it "+
		"gets SIGQUIT and is killed")
	flags.BoolVar(&o.systemd, "systemd", false, "run the command below systemd")
	flags.StringVar(&o.match, "run", ".", "run the tests whose names match the regular expression")
	dash := len(args)
	for i, arg := range args {
		if arg == "--" {
			dash, o.command = i, args[i+1:]
			break
		}
	}
	flags.Parse(args[:dash])
	o.tests = flags.Args()
	if o.command != nil && (len(o.command) == 0 || len(o.tests) > 0) || o.command == nil && o.image != "" {
		flags.Usage()
		os.Exit(exitUsage)
	}
	return o
}

func guest(ctx context.Context, o options) (int, error) {
	for _, program := range []string{"qemu-system-x86_64", "modprobe"} {
		if _, err := exec.LookPath(program); err != nil {
			return exitGuest, fmt.Errorf("install qemu-system-x86, kmod, systemd and dbus: %w", err)
		}
	}
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return exitGuest, fmt.Errorf("finding the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	kernel := exec.CommandContext(ctx, filepath.Join(root, "test/tools/build"), "linux")
	kernel.Stderr = os.Stderr
	if out, err = kernel.Output(); err != nil {
		return exitGuest, fmt.Errorf("getting the kernel: %w", err)
	}
	o.linux = strings.TrimSpace(string(out))
	if o.dir, err = os.MkdirTemp("", "kubeletkit-guest"); err != nil {
		return exitGuest, err
	}
	defer os.RemoveAll(o.dir)
	o.inside = filepath.Join(o.dir, "inside")
	if err := goCommand(ctx, root, "-C", "test/e2e", "build", "-tags", "netgo,osusergo", "-ldflags",
		"-extldflags=-static", "-o", o.inside, "./guest/inside"); err != nil {
		return exitGuest, err
	}
	if o.command != nil {
		return o.runCommand(ctx)
	}
	return o.runTests(ctx, root)
}

// environment is that of the commands.
func (o options) environment() []string {
	env := []string{
		"KUBELETKIT_GUEST=1", "KUBELETKIT_GUEST_DISK=/dev/vda", "KUBELETKIT_GUEST_SWAP=/dev/zram0",
		"TMPDIR=" + filepath.Dir(job.File) + "/tmp",
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == "PATH" || name == "HOME" || name == "XDG_CACHE_HOME" || strings.HasPrefix(name, "GO") ||
			strings.HasPrefix(name, "KUBELETKIT_") {
			env = append(env, variable)
		}
	}
	return env
}

func (o options) runCommand(ctx context.Context) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return exitGuest, err
	}
	var exit job.Exit
	o.nodes = cmp.Or(o.nodes, 1)
	o.cpus = cmp.Or(o.cpus, 2*o.nodes)
	j := job.Job{Systemd: o.systemd, SwapMiB: o.swapMiB, Silence: o.silence,
		Commands: []job.Command{{Args: o.command, Dir: dir, Env: o.environment()}}}
	err = o.run(ctx, j, func(m job.Message) {
		os.Stdout.Write(m.Output)
		if m.Exit != nil {
			exit = *m.Exit
		}
	})
	if err == nil && exit.Error != "" {
		err = errors.New(exit.Error)
	}
	if err != nil && exit.Code == 0 {
		return exitGuest, err
	}
	return exit.Code, err
}

// maxGuests is the number of guests that run at a time: their processors are emulated, mostly by one of this machine.
const maxGuests = 3

func (o options) runTests(ctx context.Context, root string) (int, error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return exitUsage, err
	}
	if len(o.tests) == 0 {
		o.tests = []string{root}
	}
	var packages []*testPackage
	for _, dir := range o.tests {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return exitUsage, err
		}
		found, err := find(dir, match)
		if err != nil {
			return exitUsage, err
		}
		packages = append(packages, found...)
	}
	if len(packages) == 0 {
		return exitUsage, fmt.Errorf("no test in %v has a name that begins with TestGuest and matches %q", o.tests,
			o.match)
	}
	begin := time.Now()
	env := o.environment()
	for i, p := range packages {
		if err := p.build(ctx, filepath.Join(o.dir, fmt.Sprintf("%d.test", i))); err != nil {
			return exitTests, err
		}
		if strings.HasPrefix(p.dir+"/", filepath.Join(root, "test/e2e")+"/") &&
			os.Getenv("KUBELETKIT_E2E_AGENT") == "" {
			agent := filepath.Join(o.dir, "minikubelet")
			if err := goCommand(ctx, root, "build", "-tags", "grpcnotrace", "-o", agent,
				"./examples/minikubelet"); err != nil {
				return exitTests, err
			}
			env = append(env, "KUBELETKIT_E2E_AGENT="+agent)
		}
	}
	fmt.Printf("built %d packages in %.0f s\n", len(packages), time.Since(begin).Seconds())

	var (
		guests   errgroup.Group
		mu       sync.Mutex
		problems []string
	)
	report := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	guests.SetLimit(maxGuests)
	for _, kind := range guestKinds {
		for _, list := range divided(runs(packages, kind.name)) {
			name := kind.name
			o := o
			o.nodes, o.kernel = cmp.Or(o.nodes, kind.nodes), kind.kernel+o.kernel
			o.cpus = cmp.Or(o.cpus, 2*o.nodes)
			j := job.Job{Systemd: kind.systemd, SwapMiB: o.swapMiB, Silence: o.silence}
			for _, r := range list {
				j.Commands = append(j.Commands, r.command(env, o.timeout))
			}
			guests.Go(func() error {
				begin, ended := time.Now(), 0
				err := o.run(ctx, j, func(m job.Message) {
					r := list[m.Command]
					place, _ := filepath.Rel(root, r.dir)
					if m.Exit == nil {
						r.receive(m.Output, func(line string) { report("%-7s | %s", name, line) })
						return
					}
					r.receive([]byte("\n"), func(string) {})
					ended++
					bad := r.problems(*m.Exit)
					report("%-7s | %s: tests: %d, problems: %d, %.1f s", name, place, len(r.tests), len(bad),
						m.Exit.Took.Seconds())
					mu.Lock()
					defer mu.Unlock()
					for _, problem := range bad {
						problems = append(problems, fmt.Sprintf("%s: %s: %s", name, place, problem))
					}
				})
				report("%-7s | ended after %.0f s", name, time.Since(begin).Seconds())
				if err != nil {
					return fmt.Errorf("%s: after %d of %d packages: %w", name, ended, len(list), err)
				}
				return nil
			})
		}
	}
	err = guests.Wait()
	if len(problems) > 0 {
		err = errors.Join(err, errors.New(strings.Join(problems, "\n")))
	}
	if err != nil {
		return exitTests, err
	}
	return 0, nil
}
