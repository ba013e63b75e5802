package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// mostEvictions is the number of evictions that the page of the node has.
	mostEvictions = 20
	// soon is the time before the end of a certificate in which the page warns.
	soon = 7 * 24 * time.Hour
)

// nodeView is what the page of the node has.
type nodeView struct {
	Name      string      `json:"name"`
	Status    string      `json:"status"`
	Tone      tone        `json:"tone"`
	Facts     []fact      `json:"facts"`
	Meters    []meter     `json:"meters"`
	Groups    []group     `json:"groups"`
	Evictions []eventView `json:"evictions"`
}

// meter is how much is used of what the node has.
type meter struct {
	Name string `json:"name"`
	// Unit is "bytes", "cores" or "" for a number.
	Unit     string  `json:"unit"`
	Used     float64 `json:"used"`
	Capacity float64 `json:"capacity"`
	Tone     tone    `json:"tone"`
	Marks    []mark  `json:"marks"`
}

// mark is a threshold of a meter.
type mark struct {
	// At is the amount that is used when the threshold is met.
	At   float64 `json:"at"`
	Text string  `json:"text"`
	Tone tone    `json:"tone"`
}

// node answers with the node.
func (h *handler) node(w http.ResponseWriter, req *http.Request) error {
	ctx := req.Context()
	object, err := read[v1.Node](ctx, h.agent, control.NodePath, nil)
	if err != nil {
		return err
	}
	status, err := read[control.Status](ctx, h.agent, control.StatusPath, nil)
	if err != nil {
		return err
	}
	events, err := read[[]runtime.Event](ctx, h.agent, control.EventsPath, nil)
	if err != nil {
		return err
	}
	held, err := read[[]control.Holding](ctx, h.agent, control.ResourcesPath, nil)
	if err != nil {
		return err
	}
	s, err := read[statsv1alpha1.Summary](ctx, h.agent, "/stats/summary", nil)
	if err != nil { // a program may have none
		s = statsv1alpha1.Summary{}
	}
	return answerJSON(w, req, nodeOf(&object, &status, &s.Node, h.imagesNow(ctx).Input.Policy, events, held, h.now()))
}

// imagesNow returns the images; none if the agent has no collector of them.
func (h *handler) imagesNow(ctx context.Context) gc.ImagePreview {
	p, err := read[gc.ImagePreview](ctx, h.agent, control.ImagesPath,
		url.Values{"goal": {string(gc.AllUnusedImages)}})
	if err != nil {
		return gc.ImagePreview{}
	}
	return p
}

// images answers with the images and with the pods that use them, the largest first.
func (h *handler) images(w http.ResponseWriter, req *http.Request) error {
	list, err := read[v1.PodList](req.Context(), h.agent, "/pods", nil)
	if err != nil {
		return err
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	p, images := h.imagesNow(req.Context()), []client.Image{}
	for i := range p.Input.Images {
		images = append(images, client.ImageOf(&p.Input.Images[i], &p.Input, pods))
	}
	slices.SortStableFunc(images, func(a, b client.Image) int { return cmp.Compare(b.Size, a.Size) })
	return answerJSON(w, req, images)
}

// nodeOf returns the node as the page shows it.
func nodeOf(node *v1.Node, status *control.Status, stats *statsv1alpha1.NodeStats, images gc.ImagePolicy,
	events []runtime.Event, held []control.Holding, now time.Time,
) nodeView {
	v := nodeView{Name: node.Name, Status: client.NodeStatus(node), Tone: good, Evictions: evictionsOf(events),
		Meters: metersOf(node, stats, status.Thresholds, images)}
	if v.Status != "Ready" || status.Unhealthy != "" {
		v.Tone = bad
	}
	v.Facts = nodeFacts(node, status, now)
	add := func(title string, facts []fact) {
		if len(facts) > 0 {
			v.Groups = append(v.Groups, group{title, facts})
		}
	}
	add("Conditions", conditionsOf(node))
	add("Pressure (PSI)", pressureOf(stats))
	add("Resources", capacitiesOf(&node.Status))
	add("Sources of pods", sourcesOf(status.Sources))
	var certificates, holdings []fact
	for _, c := range status.Certificates {
		f := fact{Name: c.Name, Value: "until " + c.Expires.Format(time.RFC3339), Tone: good,
			Answer: "ends in " + duration.HumanDuration(c.Expires.Sub(now))}
		if left := c.Expires.Sub(now); left < 0 {
			f.Tone, f.Answer = bad, "has ended "+duration.HumanDuration(-left)+" ago"
		} else if left < soon {
			f.Tone = waits
		}
		certificates = append(certificates, f)
	}
	add("Certificates", certificates)
	for _, h := range held {
		text := h.Resource + " " + h.Held
		if h.Nodes != "" {
			text += " of memory nodes " + h.Nodes
		}
		holdings = append(holdings, fact{Name: h.Namespace + "/" + h.Pod + " " + h.Container, Value: text})
	}
	add("CPUs, memory and devices that containers hold", holdings)
	return v
}

// nodeFacts returns what the head of the page has.
func nodeFacts(node *v1.Node, status *control.Status, now time.Time) []fact {
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{Name: name, Value: value})
		}
	}
	info := &node.Status.NodeInfo
	add("Runtime", info.ContainerRuntimeVersion)
	add("Kubelet", info.KubeletVersion)
	add("Agent", fmt.Sprintf("%s, PID %d", status.Version, status.PID))
	add("Not healthy", status.Unhealthy)
	add("Not ready", status.NotReady)
	if !node.CreationTimestamp.IsZero() {
		add("Age", duration.HumanDuration(now.Sub(node.CreationTimestamp.Time)))
	}
	var addresses []string
	for _, a := range node.Status.Addresses {
		if a.Type != v1.NodeHostName {
			addresses = append(addresses, a.Address)
		}
	}
	add("Addresses", strings.Join(addresses, ", "))
	add("Machine", strings.Join([]string{info.OSImage, info.KernelVersion, info.OperatingSystem + "/" +
		info.Architecture}, ", "))
	add("Manifests", status.Manifests)
	for _, taint := range node.Spec.Taints {
		add("Taint", taint.ToString())
	}
	return facts
}

// conditionsOf returns the conditions, those that are as they should not be in another tone.
func conditionsOf(node *v1.Node) []fact {
	var facts []fact
	for _, c := range node.Status.Conditions {
		f := fact{Name: string(c.Type), Tone: good, Answer: strings.TrimSpace(string(c.Status) + " " + c.Message)}
		if (c.Type == v1.NodeReady) != (c.Status == v1.ConditionTrue) {
			f.Tone = bad
		}
		if f.At = timeOf(c.LastTransitionTime); f.At != nil && f.At.Unix() <= 0 {
			f.At = nil
		}
		facts = append(facts, f)
	}
	return facts
}

// pressureOf returns the shares of time in which tasks waited, as the kernel has them.
func pressureOf(s *statsv1alpha1.NodeStats) []fact {
	var facts []fact
	add := func(name string, psi *statsv1alpha1.PSIStats) {
		if psi == nil {
			return
		}
		text := func(d *statsv1alpha1.PSIData) string {
			return fmt.Sprintf("%.1f %% of 10 s, %.1f %% of 1 min, %.1f %% of 5 min", d.Avg10, d.Avg60, d.Avg300)
		}
		facts = append(facts, fact{Name: name, Value: "some tasks waited " + text(&psi.Some)},
			fact{Value: "all tasks waited " + text(&psi.Full)})
	}
	if s.CPU != nil {
		add("CPU", s.CPU.PSI)
	}
	if s.Memory != nil {
		add("Memory", s.Memory.PSI)
	}
	if s.IO != nil {
		add("I/O", s.IO.PSI)
	}
	return facts
}

// capacitiesOf returns the resources of the node, its devices among them.
func capacitiesOf(st *v1.NodeStatus) []fact {
	var facts []fact
	for _, name := range slices.Sorted(maps.Keys(st.Capacity)) {
		all, free := st.Capacity[name], st.Allocatable[name]
		if all.IsZero() { // such as huge pages
			continue
		}
		facts = append(facts, fact{Name: string(name),
			Value: "capacity " + all.String() + ", allocatable " + free.String()})
	}
	return facts
}

func sourcesOf(sources []control.SourceStatus) []fact {
	var facts []fact
	for _, s := range sources {
		f := fact{Name: s.Name, Value: fmt.Sprintf("%d pods", s.Pods)}
		if s.Rejected > 0 {
			f.Tone, f.Answer = bad, fmt.Sprintf("%d rejected", s.Rejected)
		}
		if !s.Delivered {
			f.Tone, f.Answer = bad, "has not delivered its pods"
		}
		facts = append(facts, f)
	}
	return facts
}

// evictionsOf returns the events about pods that the node ended for others, and about thresholds, the newest first.
func evictionsOf(events []runtime.Event) []eventView {
	views := []eventView{}
	about := []string{eviction.Reason, "EvictionThresholdMet", admission.ReasonPreempted}
	for _, e := range slices.Backward(events) {
		if !slices.Contains(about, e.Reason) || len(views) == mostEvictions {
			continue
		}
		v := eventOf(&e)
		if e.Pod.UID != "" {
			v.UID, v.Pod = e.Pod.UID, e.Pod.Namespace+"/"+e.Pod.Name
		}
		views = append(views, v)
	}
	return views
}

// metersOf returns what is used of the node, with the thresholds of evictions and of the collection of images.
func metersOf(node *v1.Node, s *statsv1alpha1.NodeStats, thresholds []control.Threshold, images gc.ImagePolicy,
) []meter {
	meters := []meter{}
	add := func(name, unit, signal string, available, capacity *uint64) *meter {
		if available == nil || capacity == nil || *capacity == 0 {
			return nil
		}
		m := meter{Name: name, Unit: unit, Capacity: float64(*capacity), Tone: good, Marks: []mark{},
			Used: float64(*capacity - min(*available, *capacity))}
		for _, t := range thresholds {
			if free, ok := amountOf(t.Value, m.Capacity); ok && t.Signal == signal {
				text := "evicts pods at less than " + t.Value
				if t.GracePeriod != "" {
					text += " for " + t.GracePeriod
				}
				m.mark(m.Capacity-free, text, bad, m.Capacity-m.Used < free)
			}
		}
		meters = append(meters, m)
		return &meters[len(meters)-1]
	}
	if cores := node.Status.Capacity.Cpu().AsApproximateFloat64(); s.CPU != nil && s.CPU.UsageNanoCores != nil {
		meters = append(meters, meter{Name: "CPU", Unit: "cores", Used: float64(*s.CPU.UsageNanoCores) / 1e9,
			Capacity: cores, Tone: good, Marks: []mark{}})
	}
	if s.Memory != nil && s.Memory.AvailableBytes != nil && s.Memory.WorkingSetBytes != nil {
		add("Memory", "bytes", string(eviction.MemoryAvailable), s.Memory.AvailableBytes,
			new(*s.Memory.AvailableBytes+*s.Memory.WorkingSetBytes))
	}
	if s.Swap != nil && s.Swap.SwapAvailableBytes != nil && s.Swap.SwapUsageBytes != nil {
		add("Swap", "bytes", "", s.Swap.SwapAvailableBytes, new(*s.Swap.SwapAvailableBytes+*s.Swap.SwapUsageBytes))
	}
	if fs := s.Fs; fs != nil {
		add("Disk", "bytes", string(eviction.NodeFsAvailable), fs.AvailableBytes, fs.CapacityBytes)
		add("Inodes", "", string(eviction.NodeFsInodesFree), fs.InodesFree, fs.Inodes)
	}
	if s.Runtime != nil && s.Runtime.ImageFs != nil {
		fs := s.Runtime.ImageFs
		m := add("Images", "bytes", string(eviction.ImageFsAvailable), fs.AvailableBytes, fs.CapacityBytes)
		if high := images.HighThresholdPercent; m != nil && high > 0 && high < 100 {
			at := m.Capacity * float64(high) / 100
			m.mark(at, fmt.Sprintf("removes images at %d%%, to %d%%", high, images.LowThresholdPercent), waits, m.Used >= at)
		}
		add("Inodes of images", "", string(eviction.ImageFsInodesFree), fs.InodesFree, fs.Inodes)
	}
	if r := s.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		add("Processes", "", string(eviction.PIDAvailable), new(uint64(max(0, *r.MaxPID-*r.NumOfRunningProcesses))),
			new(uint64(max(0, *r.MaxPID))))
	}
	return meters
}

// mark adds a threshold. Where it is met, the meter has its tone.
func (m *meter) mark(at float64, text string, t tone, met bool) {
	m.Marks = append(m.Marks, mark{At: at, Text: text, Tone: t})
	if met && m.Tone != bad {
		m.Tone = t
	}
}

// amountOf returns the amount of a threshold, which may be a percentage of the capacity.
func amountOf(value string, capacity float64) (float64, bool) {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		return capacity * n / 100, err == nil
	}
	q, err := resource.ParseQuantity(value)
	return q.AsApproximateFloat64(), err == nil
}
