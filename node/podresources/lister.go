package podresources

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apiv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	apiv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// listerV1 is the service of v1.
type listerV1 struct {
	apiv1.UnimplementedPodResourcesListerServer
	*Server
}

// List implements [apiv1.PodResourcesListerServer].
func (s listerV1) List(context.Context, *apiv1.ListPodResourcesRequest) (*apiv1.ListPodResourcesResponse, error) {
	answer := &apiv1.ListPodResourcesResponse{}
	for _, pod := range s.pods() {
		answer.PodResources = append(answer.PodResources, s.podV1(pod))
	}
	return answer, nil
}

// Get implements [apiv1.PodResourcesListerServer].
func (s listerV1) Get(_ context.Context, req *apiv1.GetPodResourcesRequest) (*apiv1.GetPodResourcesResponse, error) {
	for _, pod := range s.pods() {
		if pod.Name == req.GetPodName() && pod.Namespace == req.GetPodNamespace() {
			return &apiv1.GetPodResourcesResponse{PodResources: s.podV1(pod)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", req.GetPodName(),
		req.GetPodNamespace())
}

// GetAllocatableResources implements [apiv1.PodResourcesListerServer].
func (s listerV1) GetAllocatableResources(context.Context,
	*apiv1.AllocatableResourcesRequest) (*apiv1.AllocatableResourcesResponse, error) {
	r := s.allocatable()
	return &apiv1.AllocatableResourcesResponse{Devices: r.devicesV1(), CpuIds: r.cpusV1(), Memory: r.memoryV1()}, nil
}

// podV1 returns what a pod holds as a whole, its containers, and what they hold.
func (s listerV1) podV1(pod *v1.Pod) *apiv1.PodResources {
	described := s.describe(pod)
	out := &apiv1.PodResources{Name: pod.Name, Namespace: pod.Namespace, CpuIds: described.cpusV1(),
		Memory: described.memoryV1()}
	for _, c := range described.Containers {
		out.Containers = append(out.Containers, &apiv1.ContainerResources{
			Name: c.Name, Devices: c.devicesV1(), CpuIds: c.cpusV1(), Memory: c.memoryV1(),
			DynamicResources: c.claimsV1(),
		})
	}
	return out
}

// listerV1alpha1 is the service of v1alpha1, which has main containers and their devices only.
type listerV1alpha1 struct {
	apiv1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

// List implements [apiv1alpha1.PodResourcesListerServer].
func (s listerV1alpha1) List(context.Context,
	*apiv1alpha1.ListPodResourcesRequest) (*apiv1alpha1.ListPodResourcesResponse, error) {
	answer := &apiv1alpha1.ListPodResourcesResponse{}
	for _, pod := range s.pods() {
		out := &apiv1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			c := &apiv1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name}
			held := s.of(pod, &pod.Spec.Containers[i])
			for _, d := range held.devicesV1() {
				c.Devices = append(c.Devices, &apiv1alpha1.ContainerDevices{ResourceName: d.ResourceName,
					DeviceIds: d.DeviceIds})
			}
			out.Containers = append(out.Containers, c)
		}
		answer.PodResources = append(answer.PodResources, out)
	}
	return answer, nil
}
