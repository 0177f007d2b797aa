"""Where pods run in Kubernetes and what they get: the keys below ``kubernetes``.

Which names, labels and quantities there may be, the API server says.
"""

from __future__ import annotations

from typing import Annotated

from pytest_dlperf.config.parts import Part, Scalar, SomeOf, Text, doc


class Volume(Part, frozen=True, kw_only=True):
    """What is at a path of pods: a claim, a folder of the node, or memory."""

    claim: Annotated[Text | None, doc("The PersistentVolumeClaim of this name.")] = None
    host_path: Annotated[Text | None, doc("This folder of the node.")] = None
    memory: Annotated[Scalar | None, doc("Memory, up to so much: 16Gi.")] = None

    def __post_init__(self) -> None:
        """Refuse a volume of two kinds, or of none.

        Raises:
            ValueError: It is one.
        """
        if [self.claim, self.host_path, self.memory].count(None) != 2:  # noqa: PLR2004 - one of three
            raise ValueError("a volume is one of a claim, a host_path or memory")


class Kubernetes(Part, frozen=True, kw_only=True):
    """Where pods run, and what they get."""

    context: Annotated[
        Text | None, doc("The context of the kubeconfig; default: the current one.")
    ] = None
    namespace: Annotated[Text | None, doc("Where pods run; default: that of the context.")] = None
    template: Annotated[
        Text | None,
        doc("A manifest of a Job to begin with, beside cluster.yaml."),
    ] = None
    image: Annotated[
        Text | None,
        doc("The image of the trainers; container.image of a system goes before it."),
    ] = None
    device: Annotated[Text, doc("The resource that a device is.")] = "nvidia.com/gpu"
    resources: Annotated[
        dict[str, Scalar], doc("What a node's pod asks for beside devices, as limits.")
    ] = {}
    volumes: Annotated[dict[str, Volume], doc("What pods find where, by path.")] = {}
    node_selector: Annotated[
        dict[str, Scalar], doc("Labels of the nodes that pods may run on.")
    ] = {}
    service_account: Annotated[Text | None, doc("The service account of pods.")] = None
    image_pull_secrets: Annotated[SomeOf[Text], doc("Secrets by which images are pulled.")] = ()
    queue: Annotated[Text | None, doc("The local queue of Kueue that pods wait in.")] = None
