# descent-sweep in a container, for one machine or, by Apptainer, for Slurm
#
#     docker build -t descent-sweep .
#     docker run --rm -v sweeps:/sweeps descent-sweep run quickstart
#
# For a folder instead of a volume, make it first, and run as its owner: --user "$(id -u)".
#
# A CPU build of torch is much smaller: name its index by --build-arg TORCH_OPTIONS="--index-url URL".
FROM python:3.12-slim

ARG TORCH_OPTIONS=""
WORKDIR /opt/descent-sweep
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY sweep sweep
COPY search_spaces search_spaces
COPY trainables trainables
COPY trainables_testing trainables_testing
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir ${TORCH_OPTIONS} "$(grep '^torch==' constraints.txt)" \
    && /opt/venv/bin/pip install --no-cache-dir -c constraints.txt ".[cluster]" \
    && useradd --create-home --uid 1000 sweeper \
    && install -d -o sweeper /sweeps

ENV PATH=/opt/venv/bin:$PATH SWEEP_STORAGE=/sweeps
USER 1000
WORKDIR /home/sweeper
ENTRYPOINT ["sweep"]
CMD ["--help"]
