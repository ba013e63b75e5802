package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/staticuid"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// checkTimeout bounds what the check asks of the runtime.
const checkTimeout = 20 * time.Second

// checkCommand returns the command check of a program. It reads its flags itself, since they are those of the agent.
func checkCommand(program config.Program, out io.Writer) *cobra.Command {
	own := func(form *string, files *[]string) *pflag.FlagSet {
		fs := pflag.NewFlagSet("check", pflag.ContinueOnError)
		fs.StringVarP(form, "output", "o", "", "form of the output: json or yaml")
		fs.StringArrayVar(files, "flags-file", nil, "file with flags of a kubelet as systemd reads it, such as "+
			check.KubeadmFlagFiles()[0])
		return fs
	}
	cmd := &cobra.Command{
		Use: "check [FLAGS OF A KUBELET]", Short: "show what would change if the agent took the place of a kubelet",
		GroupID: client.GroupNode,
		Long: "It reads the configuration, the kubeconfig, the root directory, the manifests and the pods that run, " +
			"and changes and starts nothing. " +
			"Without --config it takes the files of kubeadm, if there are any.\n" +
			"The exit code is 1 if the agent would not start, if a pod would be restarted or stopped or could not " +
			"start again, or if a setting about security would not hold. " +
			"Otherwise it is 3 if there is no kubelet to compare with, or if something could not be compared.",
		Example: `  minikubelet check                                          # on a node of kubeadm
  minikubelet check --config kubelet.yaml --kubeconfig kubelet.conf`,
		DisableFlagParsing: true,
	}
	var form string
	var files []string
	cmd.Flags().AddFlagSet(own(&form, &files)) // for the help
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var form string
		var files, rest []string
		fs := own(&form, &files)
		all := program.Flags()
		all.AddFlagSet(fs)
		all.Init("check", pflag.ContinueOnError)
		err := all.ParseAll(args, func(f *pflag.Flag, value string) error {
			if fs.Lookup(f.Name) != nil {
				return fs.Set(f.Name, value)
			}
			rest = append(rest, "--"+f.Name+"="+value)
			return nil
		})
		switch {
		case errors.Is(err, pflag.ErrHelp):
			return cmd.Help()
		case err == nil && all.NArg() > 0:
			err = fmt.Errorf("unexpected argument %q", all.Arg(0))
		case err == nil && !slices.Contains([]string{"", "json", "yaml"}, form):
			err = fmt.Errorf("--output %q: want json or yaml", form)
		}
		if err != nil {
			return &config.UsageError{Err: fmt.Errorf("check: %w; see %s check --help", err, program)}
		}
		return runCheck(cmd.Context(), program, "/", rest, files, form, out)
	}
	return cmd
}

// notCompared is the exit code of a check that found nothing against a start of the agent, but has not compared all.
const notCompared = 3

// runCheck prints a report, and returns an error if something stands against a start of the agent, or if it has not
// compared all. The files of kubeadm and of the kubelet, and the processes, are below the directory fsRoot.
func runCheck(ctx context.Context, program config.Program, fsRoot string, args, flagFiles []string, form string,
	out io.Writer) error {
	args, err := kubeletArgs(fsRoot, args, flagFiles)
	if err != nil {
		return err
	}
	report := inspect(ctx, program, fsRoot, args)
	if form == "" {
		err = check.Print(out, report)
	} else {
		err = client.PrintValue(out, form, report)
	}
	if err != nil {
		return err
	}
	switch blocking := len(report.Blocking()); {
	case blocking > 0:
		return fmt.Errorf("of %d findings, %d against a start of the agent: those with ! say why", len(report.Findings),
			blocking)
	case !report.HasKubelet():
		return &client.Failure{Code: notCompared, Err: errors.New("there is no kubelet to compare with: nothing is " +
			"known of a change to this agent")}
	case len(report.NotChecked) > 0:
		return &client.Failure{Code: notCompared, Err: fmt.Errorf("of %d findings, none against a start of the agent, "+
			"but not all was checked", len(report.Findings))}
	default:
		return nil
	}
}

// kubeletArgs returns the flags of the kubelet: those that were given after those of the files. Without a
// configuration they are those of kubeadm, if it has written one.
func kubeletArgs(fsRoot string, args, flagFiles []string) (all []string, err error) {
	given := slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--config=") || strings.HasPrefix(arg, "--config-dir=")
	})
	if _, err := os.Stat(filepath.Join(fsRoot, check.KubeadmConfig)); err == nil && !given {
		for _, arg := range check.KubeadmArgs() {
			name, path, _ := strings.Cut(arg, "=")
			all = append(all, name+"="+filepath.Join(fsRoot, path))
		}
		for _, path := range check.KubeadmFlagFiles() {
			data, err := config.ReadFile(filepath.Join(fsRoot, path))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("reading the flags of the kubelet: %w", err)
			}
			all = append(all, check.FlagsOf(string(data))...)
		}
	}
	for _, path := range flagFiles {
		data, err := config.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the flags of the kubelet: %w", err)
		}
		all = append(all, check.FlagsOf(string(data))...)
	}
	return append(all, args...), nil
}

// inspect returns the report about an agent with these flags. It changes nothing.
func inspect(ctx context.Context, program config.Program, fsRoot string, args []string) (r check.Report) {
	s, err := program.Parse(args)
	r.Findings = check.Settings(s, err)
	r.LookedFor = lookForKubelet(fsRoot, args, s)
	if len(args) == 0 && r.HasKubelet() {
		r.NotChecked = append(r.NotChecked, "the settings of the kubelet: give its flags")
	}
	if s == nil {
		r.NotChecked = append(r.NotChecked, "machine, state and pods: the settings cannot be read")
		return r
	}
	r.Findings = append(r.Findings, check.Machine(host.Decide(s, host.Read()))...)
	r.Findings = append(r.Findings, checkKubeconfig(s)...)
	r.Findings = append(r.Findings, check.State(stateFiles(s), hasDrivers(s))...)
	r.Findings = append(r.Findings, checkEarlierDevices(s)...)
	if s.StaticPodURL != "" {
		r.NotChecked = append(r.NotChecked, "the pods of the URL of manifests: it is not read")
	}
	switch {
	case s.Embedded:
		r.NotChecked = append(r.NotChecked, "the pods that run: the embedded runtime is not started")
		return r
	case !s.OnMachine():
		r.NotChecked = append(r.NotChecked, "the pods that run: the program has a container runtime of its own")
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	rt, dialErr := cri.Dial(ctx, s.ContainerRuntimeEndpoint, runtimeOptions(s, nil, silent()))
	if dialErr == nil {
		defer func() { _ = rt.Close() }()
	}
	if err == nil { // otherwise the settings are refused
		var of placementRuntime = rt
		if dialErr != nil {
			of = noRuntime{dialErr}
		}
		r.Findings = append(r.Findings, checkManagers(ctx, s, os.DirFS("/"), of)...)
	}
	if dialErr != nil {
		r.NotChecked = append(r.NotChecked, "the pods that run: "+dialErr.Error())
		return r
	}
	findings, running, err := checkPods(ctx, s, rt)
	if err != nil {
		r.NotChecked = append(r.NotChecked, "the pods that run: "+err.Error())
	}
	r.LookedFor = append(r.LookedFor, check.Place{What: "pods that run in " + s.ContainerRuntimeEndpoint,
		Found: running > 0})
	r.Findings = append(r.Findings, findings...)
	return r
}

// lookForKubelet looks for a kubelet, or an earlier agent, in the flags, in the files and among the processes. s is nil
// if the flags cannot be read.
func lookForKubelet(fsRoot string, args []string, s *config.Settings) (places []check.Place) {
	flags := check.FlagsOfAKubelet()
	places = append(places, check.Place{
		What: "flags of a kubelet: " + strings.Join(flags, ", "),
		Found: slices.ContainsFunc(args, func(arg string) bool {
			name, _, _ := strings.Cut(arg, "=")
			return slices.Contains(flags, name)
		}),
	})
	_, err := os.Stat(filepath.Join(fsRoot, check.KubeadmConfig))
	places = append(places, check.Place{What: check.KubeadmConfig + ", which kubeadm writes", Found: err == nil})
	dirs := map[string]string{filepath.Dir(check.KubeadmConfig): filepath.Join(fsRoot,
		filepath.Dir(check.KubeadmConfig))}
	if s != nil && s.RootDir != "" {
		dirs[s.RootDir] = s.RootDir
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		entries, _ := os.ReadDir(dirs[name])
		places = append(places, check.Place{What: "files in the root directory " + name, Found: len(entries) > 0})
	}
	processes, _ := filepath.Glob(filepath.Join(fsRoot, "proc", "[0-9]*", "comm")) // the pattern is good
	runs := slices.ContainsFunc(processes, func(path string) bool {
		name, _ := os.ReadFile(path)
		return strings.TrimSpace(string(name)) == "kubelet"
	})
	return append(places, check.Place{What: "a process with the name kubelet", Found: runs})
}

// noRuntime is a runtime that does not answer.
type noRuntime struct{ err error }

func (n noRuntime) SetCPUSet(context.Context, runtime.ContainerID, string) error { return n.err }
func (n noRuntime) ListPods(context.Context) ([]*runtime.Pod, error)             { return nil, n.err }

// checkManagers opens the managers of CPUs and memory as the agent does, and returns what becomes of their states.
func checkManagers(ctx context.Context, s *config.Settings, host fs.FS,
	rt placementRuntime) (findings []check.Finding) {
	p, err := newPlacement(ctx, s, host, rt)
	if err == nil {
		findings, err = p.check(s.RootDir, silent())
	}
	if err != nil {
		return []check.Finding{{Area: check.AreaState, Setting: "CPUs and memory", Verdict: check.Refused,
			Why: err.Error(), Blocks: true}}
	}
	return findings
}

// checkKubeconfig reads the kubeconfig. The agent needs it, or one with which it can request it.
func checkKubeconfig(s *config.Settings) []check.Finding {
	if s.Kubeconfig == "" {
		return nil
	}
	var errs []error
	for _, path := range []string{s.Kubeconfig, s.BootstrapKubeconfig} {
		if path == "" {
			continue
		}
		err := usableKubeconfig(path)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return []check.Finding{{
		Area: check.AreaSettings, Setting: "--kubeconfig", Verdict: check.Refused, Blocks: true,
		Why: "no kubeconfig can be used: " + errors.Join(errs...).Error(), Do: "give the kubeconfig of the kubelet",
	}}
}

func usableKubeconfig(path string) error {
	data, err := config.ReadFile(path)
	if err != nil {
		return err
	}
	c, err := clientcmd.Load(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = clientcmd.NewDefaultClientConfig(*c, nil).ClientConfig()
	return err
}

// maxStateFile is the number of bytes of a state file that are read. Those that are judged by their
// content are far smaller.
const maxStateFile = 4 << 20

// stateFiles returns the files of a kubelet that a check judges.
func stateFiles(s *config.Settings) (files []check.File) {
	elsewhere := map[string]string{"device-plugins": s.DevicePluginsDir, "pki": s.CertDir}
	for _, pattern := range check.StatePaths() {
		first, rest, _ := strings.Cut(pattern, "/")
		dir, moved := elsewhere[first]
		if !moved {
			dir, first, rest = s.RootDir, "", pattern
		}
		paths, _ := filepath.Glob(filepath.Join(dir, rest)) // the patterns are good
		for _, path := range paths {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				continue
			}
			file := check.File{Path: filepath.ToSlash(filepath.Join(first, rel)), Content: stateFile(path)}
			if moved && dir != filepath.Join(s.RootDir, first) {
				file.At = path
			}
			files = append(files, file)
		}
	}
	return files
}

// stateFile returns the content of a regular file, nil if it is none, or cannot be read, which is reported.
func stateFile(path string) (content []byte) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() <= maxStateFile {
		content, _ = config.ReadFile(path)
	}
	return content
}

// checkEarlierDevices judges the checkpoint of devices of an earlier version, if there is one.
func checkEarlierDevices(s *config.Settings) []check.Finding {
	path := earlierCheckpoint(s.EarlierDevicePluginsDir, s.DevicePluginsDir)
	content := stateFile(path)
	if content == nil {
		return nil
	}
	now := filepath.Join(s.DevicePluginsDir, devices.CheckpointName)
	return []check.Finding{check.EarlierDevices(check.File{At: path, Content: content},
		check.File{At: now, Content: stateFile(now)})}
}

// checkPods compares the manifests with the pods in the container runtime. It returns also how many pods run.
func checkPods(ctx context.Context, s *config.Settings,
	rt *cri.Runtime) (findings []check.Finding, runs int, err error) {
	listed, err := rt.ListPods(ctx)
	if err != nil {
		return nil, 0, err
	}
	static, findings, err := staticPods(ctx, s, staticuid.New(rt, staticuid.Options{Logger: silent()}))
	if err != nil {
		return findings, 0, err
	}
	var running []check.Pod
	for _, pod := range listed {
		if !pod.Running() {
			continue
		}
		status, err := rt.InspectPod(ctx, pod.PodRef)
		if err != nil {
			return findings, len(running), err
		}
		source := ""
		if len(status.Sandboxes) > 0 {
			source = status.Sandboxes[0].Annotations[podspec.AnnotationConfigSource]
		}
		running = append(running, check.Pod{NamespacedName: types.NamespacedName{Namespace: pod.Namespace,
			Name: pod.Name}, UID: pod.UID, Source: source})
	}
	return append(findings, check.Pods(static, running, s.Kubeconfig != "")...), len(running), nil
}

// staticPods reads the manifests as the agent does, and returns findings about those that it would not
// run. A pod that the agent takes over has the UID under which it runs.
func staticPods(ctx context.Context, s *config.Settings,
	uids *staticuid.UIDs) (static []check.Pod, findings []check.Finding, err error) {
	if s.StaticPodPath == "" {
		return nil, nil, nil
	}
	node, err := s.NodeName()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	settings := *s
	settings.RunOnce = true // it does not wait for a directory that is missing
	settings.StaticPodUIDs = staticPodUIDs(ctx, s, silent())
	source, _ := files(&settings, func(path string, err error) {
		_, ignored := errors.AsType[*manifest.Warning](err)
		switch {
		case ignored:
			findings = append(findings, check.Finding{Area: check.AreaPods, Setting: path, Verdict: check.Ignored,
				Why: "the file is used as by kubelet: " + err.Error(), Do: "correct it"})
		case err != nil:
			findings = append(findings, check.Finding{Area: check.AreaPods, Setting: path, Verdict: check.Refused,
				Why: err.Error(), Blocks: true})
		}
	}, silent())
	sink := &snapshot{node: node, source: source.Name(), uids: uids, set: cancel}
	if err := source.Run(ctx, sink); err != nil && ctx.Err() == nil {
		return nil, findings, err
	}
	ignoredFields := s.IgnoredFields()
	for _, pod := range sink.pods {
		for _, why := range ignoredFields(&pod.Spec) {
			findings = append(findings, check.Finding{Area: check.AreaPods, Setting: pod.Namespace + "/" + pod.Name,
				Verdict: check.Ignored, Why: why + ", as in kubelet"})
		}
		static = append(static,
			check.Pod{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID})
	}
	return static, findings, nil
}

// snapshot is a sink for the first list of pods of a source.
type snapshot struct {
	podconfig.SinkBase
	node, source string
	uids         *staticuid.UIDs
	set          func() // called with each list
	pods         []*v1.Pod
}

// Set implements [podconfig.Sink].
func (s *snapshot) Set(pods []*v1.Pod) {
	s.pods = pods
	s.set()
}

// StaticUID implements [podconfig.Sink].
func (s *snapshot) StaticUID(ctx context.Context, pod podconfig.StaticPod) types.UID {
	pod.Source = s.source
	return s.uids.UID(ctx, pod)
}

// NodeName implements [podconfig.Sink].
func (s *snapshot) NodeName() string { return s.node }
