package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func encodePods(pods []*v1.Pod) ([]byte, error) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items: make([]v1.Pod, 0, len(pods))}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	data, err := json.Marshal(list)
	return append(data, '\n'), err
}

// Pods returns a handler of /pods: a v1.PodList of the pods of the agent with their status. Requests
// at the same time share one encoding.
func Pods(agent Agent) http.Handler {
	return nodenet.NewSharedPage("application/json", func([]byte) ([]byte, error) { return encodePods(agent.Pods()) })
}

func addPods(mux *routes, agent Agent, opts Options) {
	pods := Pods(agent)
	mux.handle("GET /pods", pods)
	mux.handle("GET /pods/{$}", pods)
}

// addAllocatedPods adds /allocatedPods (KEP-1287).
func addAllocatedPods(mux *routes, agent Agent) {
	pods := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var out []*v1.Pod
		for _, pod := range agent.Pods() {
			if podspec.IsPhaseTerminal(pod.Status.Phase) {
				continue
			}
			allocated := *pod
			allocated.Status = v1.PodStatus{}
			out = append(out, &allocated)
		}
		var data []byte
		var err error
		if name, uid := req.PathValue("pod"), types.UID(req.PathValue("uid")); name == "" {
			data, err = encodePods(out)
		} else {
			i := slices.IndexFunc(out, func(pod *v1.Pod) bool {
				return pod.Name == name && pod.Namespace == req.PathValue("namespace") && (uid == "" || pod.UID == uid)
			})
			if i < 0 {
				http.Error(w, "pod not found", http.StatusNotFound)
				return
			}
			out[i].TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			data, err = json.Marshal(out[i])
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	})
	for _, path := range []string{"", "/{$}", "/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"} {
		mux.handle("GET /allocatedPods"+path, pods)
	}
}

// RunningPods returns a handler of /runningpods: a v1.PodList of the pods of which something runs,
// as the runtime lists them. list is ListPods of a runtime. Of a pod it has the name, the
// namespace, the UID, and the names of the containers that run.
func RunningPods(list func(context.Context) ([]*runtime.Pod, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		found, err := list(req.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var pods []*v1.Pod
		for _, p := range found {
			if !p.Running() {
				continue
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
			for _, c := range p.Containers {
				if c.State == runtime.ContainerRunning {
					pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name})
				}
			}
			pods = append(pods, pod)
		}
		data, err := encodePods(pods)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	})
}
