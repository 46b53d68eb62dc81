# berdiff in a container, from packages of the registries alone; docs/install.md says how it is built and run.
#   CPU: docker build -t berdiff .
#   GPU: docker build -t berdiff:gpu --build-arg BASE=pytorch/pytorch:TAG --build-arg CONSTRAINTS= .
ARG BASE=python:3.11-slim

FROM ${BASE}
# constraints.txt pins the CPU build of torch; empty keeps the base's own
ARG CONSTRAINTS=constraints.txt
# where pip looks besides its own index, such as for builds of torch without CUDA
ARG PIP_EXTRA_INDEX_URL
ARG EXTRAS=viewer,hub,s3,onnx
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /opt/berdiff
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m pip install ${CONSTRAINTS:+-c ${CONSTRAINTS}} ".[${EXTRAS}]" && rm -rf build src/*.egg-info
# nobody works as root: results belong to whom `docker run --user` says, by default to this user; both folders are open to
# any user, as /tmp is, and so is a volume that docker makes of them
RUN useradd --create-home --uid 10001 berdiff && mkdir -p /data /cache && chmod 1777 /data /cache
USER berdiff
ENV BERDIFF_CACHE=/cache/berdiff HF_HOME=/cache/huggingface MPLCONFIGDIR=/cache/matplotlib
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["berdiff"]
CMD ["--help"]
