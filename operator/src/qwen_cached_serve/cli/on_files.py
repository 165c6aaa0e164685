"""Commands that judge what is written: resources in files, models, logs. Some look at a cluster beside it.

Options here, work in the modules beside, each imported only by the command that needs it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.options import (
    Context,
    EngineCpuImage,
    EngineImage,
    Kubeconfig,
    Namespace,
    Output,
    OutputOption,
    operator_defaults,
    print_json,
    print_lines,
)

app = typer.Typer()


@app.command()
def plan(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="hub id of a known model, or a resource file as with -f")
    ] = None,
    file: Annotated[
        str | None, typer.Option("-f", "--file", help="resource file (YAML or JSON), - for standard input")
    ] = None,
    config: Annotated[str | None, typer.Option(help="the model's config.json, or its folder")] = None,
    model: Annotated[str | None, typer.Option(help="the same as MODEL")] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="tensor-parallel size")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="for example fp8_e4m3")] = None,
    ssm_dtype: Annotated[
        str | None,
        typer.Option("--mamba-ssm-cache-dtype", "--ssm-dtype", help="dtype of the recurrent state, e.g. bfloat16"),
    ] = None,
    conv_dtype: Annotated[
        str | None, typer.Option("--mamba-cache-dtype", help="dtype of the convolution window, e.g. float32")
    ] = None,
    speculative_tokens: Annotated[int | None, typer.Option(min=0, help="draft tokens per step")] = None,
    speculative_method: Annotated[str | None, typer.Option(help="drafting method, mtp when not given")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="alignment step that the engine is given")] = None,
    attention_backend: Annotated[str | None, typer.Option(help="for example FLASH_ATTN")] = None,
    gdn_prefill_backend: Annotated[
        str | None, typer.Option(help="kernel of the linear layers' prefill: flashinfer, triton, cutedsl")
    ] = None,
    accelerator: Annotated[str | None, typer.Option(help="gpu or cpu")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU model (H100, B200, L40S …) or compute capability (9.0)")] = None,
    l1_size: Annotated[str | None, typer.Option(help="size of the first cache tier, 100Gi when not given")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="longest request in tokens")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="requests that run at the same time")] = None,
    vllm: Annotated[str | None, typer.Option(help="vLLM release in the image")] = None,
    lmcache: Annotated[str | None, typer.Option(help="LMCache release in the image")] = None,
    output: OutputOption = Output.TABLE,
    engine_image: EngineImage = "",
    engine_cpu_image: EngineCpuImage = "",
) -> None:
    """Predict the block size N and show both command lines with a reason for every flag."""
    from qwen_cached_serve.cli import plan_output, planning

    file, model = planning.target(target, file, model)
    options = planning.Options(
        config=config,
        model=model,
        tensor_parallel_size=tp,
        kv_cache_dtype=kv_cache_dtype,
        ssm_dtype=ssm_dtype,
        conv_dtype=conv_dtype,
        speculative_method=speculative_method,
        speculative_tokens=speculative_tokens,
        block_size=block_size,
        attention_backend=attention_backend,
        gdn_prefill_backend=gdn_prefill_backend,
        accelerator=accelerator,
        gpu=gpu,
        l1_size=l1_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        vllm=vllm,
        lmcache=lmcache,
    )
    defaults = operator_defaults(engine_image, engine_cpu_image)
    if file is None:
        plans = [planning.plan_options(options, defaults)]
    else:
        from qwen_cached_serve.cli.documents import read_resources

        plans = planning.plan_documents([document.data for document in read_resources(file)], options, defaults)
    if output is Output.JSON:
        print_json([plan_output.as_json(planned) for planned in plans])
    else:
        for index, planned in enumerate(plans):
            print_lines(["", *plan_output.as_text(planned)] if index else plan_output.as_text(planned))
    if any(planned.plan.problem for planned in plans):
        raise typer.Exit(1)


@app.command()
def render(
    file: Annotated[str, typer.Argument(help="resource file (YAML or JSON), - for standard input")],
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="for resources that name none")] = None,
    engine_image: EngineImage = "",
    engine_cpu_image: EngineCpuImage = "",
) -> None:
    """Print the manifests that the operator would apply."""
    from qwen_cached_serve.cli.rendering import render_documents

    sys.stdout.write(render_documents(file, namespace, operator_defaults(engine_image, engine_cpu_image)))


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(help="resource files, - for standard input")],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="print problems only, no warnings")] = False,
) -> None:
    """Judge resources as the API server and the operator would; exit status 1 when one is refused."""
    from qwen_cached_serve.cli.checking import check_files

    checked = check_files(files)
    for result in checked:
        if result.problems:
            print_lines(f"{result.label}: {problem}" for problem in result.problems)
        elif not quiet:
            print(f"{result.label}: ok")
            for warning in result.warnings:
                print(f"{result.label}: warning: {warning}", file=sys.stderr)
    if any(result.problems for result in checked):
        raise typer.Exit(1)


@app.command()
def diff(
    file: Annotated[str, typer.Option("-f", "--file", help="the edited resource (YAML or JSON), - for standard input")],
    against: Annotated[
        str | None, typer.Option(help="file with the resource before; the cluster's when not given")
    ] = None,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
    engine_image: EngineImage = "",
    engine_cpu_image: EngineCpuImage = "",
) -> None:
    """Tell what an edit would do: restarts and why, N, whether the cache stays warm, who answers meanwhile."""
    from qwen_cached_serve.cli import diff_output, diffing
    from qwen_cached_serve.kube.connection import Origin

    defaults = operator_defaults(engine_image, engine_cpu_image)
    found = diffing.diff(file, against, namespace, Origin(kubeconfig, context), defaults)
    if output is Output.JSON:
        print_json([diff_output.as_json(found)])
    else:
        print_lines(diff_output.as_text(found))


@app.command()
def compat(
    first: Annotated[str, typer.Argument(help="a probe's report, a resource file, or pod/NAME")],
    second: Annotated[str, typer.Argument(help="what to compare it with")],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="namespace of pods")] = "default",
    config: Annotated[str | None, typer.Option(help="the model's config.json, for resources")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU that resources will get (H100, B200 …, or 9.0)")] = None,
    vllm: Annotated[str | None, typer.Option(help="vLLM release in the resources' image")] = None,
    lmcache: Annotated[str | None, typer.Option(help="LMCache release in the resources' image")] = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
    engine_image: EngineImage = "",
    engine_cpu_image: EngineCpuImage = "",
) -> None:
    """Tell whether two engines can read each other's cache entries; exit status 0 yes, 1 no, 2 not known or error."""
    from qwen_cached_serve.cli import compat as compatibility
    from qwen_cached_serve.cli.planning import Options
    from qwen_cached_serve.core.compatibility import compare
    from qwen_cached_serve.kube.connection import Origin

    options = Options(config=config, gpu=gpu, vllm=vllm, lmcache=lmcache)
    defaults, origin = operator_defaults(engine_image, engine_cpu_image), Origin(kubeconfig, context)
    try:
        one, other = (
            compatibility.find_side(argument, namespace, options, defaults, origin) for argument in (first, second)
        )
    except CliError as error:
        error.exit_status = compatibility.UNKNOWN
        raise
    answer = compare(one, other)
    if output is Output.JSON:
        print_json([compatibility.as_json(one, other, answer)])
    else:
        print_lines(compatibility.as_text(one, other, answer))
    raise typer.Exit(compatibility.status_of(answer))


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="a container's log or termination message, - for standard input")],
    container: Annotated[
        str, typer.Option("-c", "--container", help="whose log it is: engine, cache-server or probe")
    ] = "engine",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why an engine, cache server or probe failed: the cause in its log, the field to change, what to do."""
    from qwen_cached_serve.cli import explaining

    explanation = explaining.explain(explaining.read_text(file), container)
    if output is Output.JSON:
        print_json([explaining.as_json(explanation)])
    else:
        print_lines(explaining.as_text(explanation))


@app.command()
def crds() -> None:
    """Print the CustomResourceDefinition, ready for `kubectl apply -f -`."""
    from qwen_cached_serve.api.crd import build_crd, to_yaml

    sys.stdout.write(to_yaml(build_crd()))
